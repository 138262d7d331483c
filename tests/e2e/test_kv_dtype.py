"""--kv-cache-dtype: greedy tokens are those of transformers when its keys and values pass through the cast, whatever the cache,
the pages, the chunks and the windows; and what the run tells of the KV's bytes is right."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.config.errors import ConfigurationError
from tests.e2e.engines import assert_alive, tiny

NEW = 24
SHARED = [(7 * i) % 90 + 3 for i in range(40)]
PROMPTS = [[5], [(3 * i) % 90 + 3 for i in range(70)], [*SHARED, 9, 10, 11], [*SHARED, 80, 81]]
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
SMALL = {"max_total_tokens": 160, "schedule_conservativeness": 0.01}
"""A pool for two of the requests, which lets more of them begin."""
RANGE = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {}),
    # Window layers, which have a pool of their own, round a full one.
    "gemma": (
        "Gemma3ForCausalLM",
        {
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "tie_word_embeddings": False,  # a tied head would repeat the last token for ever
        },
    ),
}


def through(kv_dtype: str) -> Callable[[Any], Any]:
    import torch

    dtype = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}[kv_dtype]
    most = RANGE[kv_dtype]
    return lambda values: values.clamp(-most, most).to(dtype).to(values.dtype)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """Name -> checkpoint, and transformers' model of it."""
    pytest.importorskip("torch")
    from jackfield.testing.tiny_models import reference_model, tiny_config

    made = {}
    for name, (architecture, entries) in MODELS.items():
        model = reference_model(architecture, tiny_config(architecture, {**entries, "max_position_embeddings": 128}))
        path = tmp_path_factory.mktemp(f"tiny-{name}")
        model.save_pretrained(path)
        made[name] = (path, model)
    return made


def greedy(model: Any, prompt: list[int], cast: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """transformers' choices, no cache, with the keys and values of all layers cast."""
    import torch

    module = importlib.import_module(type(model).__module__)
    plain = module.eager_attention_forward

    def attend(layer: Any, query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> Any:
        return plain(layer, query, cast(key), cast(value), *rest, **more)

    ids = list(prompt)
    with monkeypatch.context() as patch, torch.inference_mode():
        patch.setattr(module, "eager_attention_forward", attend)
        for _ in range(NEW):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize(
    ("name", "kv_dtype", "args"),
    [
        ("llama", "fp8_e4m3", {"page_size": 4, "max_prefill_tokens": 32}),
        ("llama", "fp8_e5m2", {"kv_tier": ["host"], "max_prefill_tokens": 64, **SMALL}),
        ("gemma", "fp8_e4m3", {"page_size": 4, "chunked_prefill_size": 16}),
        ("gemma", "fp8_e5m2", {"enable_deterministic_inference": True}),
    ],
)
def test_tokens_are_those_of_transformers_through_the_cast(
    models: dict[str, tuple[Path, Any]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kv_dtype: str,
    args: dict[str, Any],
) -> None:
    path, model = models[name]
    wanted = [greedy(model, prompt, through(kv_dtype), monkeypatch) for prompt in PROMPTS]
    assert wanted != [greedy(model, prompt, lambda values: values, monkeypatch) for prompt in PROMPTS]  # it matters
    with tiny(path, kv_cache_dtype=kv_dtype, **args) as engine:
        for _ in range(2):  # the second time much comes out of the prefix cache, or back from the tier
            answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
            assert [answer["output_ids"] for answer in answers] == wanted
        # KV that was given up is computed again, or comes back, and is the same.
        assert (engine.get_server_info()["scheduler"]["retractions"] > 0) == ("max_total_tokens" in args)
        assert_alive(engine)
        assert engine.get_server_info()["args"]["kv_cache_dtype"] == kv_dtype


def test_the_bytes_of_a_slot_are_told(models: dict[str, tuple[Path, Any]]) -> None:
    """3 layers, keys and values, 2 KV heads, 16 entries."""
    path, _ = models["llama"]
    for args, size in ({}, 4), ({"kv_cache_dtype": "fp8_e4m3"}, 1), ({"kv_cache_dtype": "bf16"}, 2):
        with tiny(path, **args) as engine:
            kv = engine.get_server_info()["kv"]
            assert (kv["bytes_per_slot"], kv["total"]) == (3 * 2 * 2 * 16 * size, 4096)


def test_a_plugin_that_keeps_no_such_kv_is_refused(models: dict[str, tuple[Path, Any]]) -> None:
    with pytest.raises(
        ConfigurationError, match="--kv-cache-dtype fp8_e4m3 needs 'kv:fp8_e4m3', which it does not offer"
    ):
        Engine(
            model_path=str(models["llama"][0]),
            skip_tokenizer_init=True,
            kv_cache_dtype="fp8_e4m3",
            attention_backend="cpu",
        )
