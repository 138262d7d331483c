"""Models with sliding-window layers, whose KV of these layers has a smaller pool: greedy tokens are transformers' own for
prompts much longer than the window, whatever the cache, the pages, the chunks, the loop and the pressure, and the pool
stays small. The dummy page is poisoned in every run: a read below a window's floor would give NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.testing.covering import pairwise
from tests.e2e.engines import assert_alive, tiny

WINDOW = 12
NEW = 40
SHARED = [(7 * i) % 120 + 2 for i in range(90)]
PROMPTS = [
    [5],
    [(3 * i) % 120 + 2 for i in range(150)],
    [*SHARED, 9, 10, 11],
    [*SHARED, 90, 91],
    [*SHARED[:50], 33, 34, 35, 36],
]
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}

FACTORS: dict[str, list[Any]] = {
    "model": ["mixed", "window"],
    "cache": ["radix", "chunk"],
    "page_size": [1, 4, 16],
    "chunking": [(64, None), (32, 16), (16, -1)],
    "event_loop": ["normal", "overlap"],
    "composition": ["together", "one by one", "warm"],
    "deterministic": [False, True],
    # The small one holds any request alone, but not all at once; nor does the window pool of the narrow one.
    "pool": ["large", "small", "narrow"],
}
ROWS = pairwise(FACTORS)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """mixed: full layers between window layers; window: window layers alone. Random, the head drawn wide."""
    torch = pytest.importorskip("torch")
    from transformers import MistralConfig, MistralForCausalLM, SmolLM3Config, SmolLM3ForCausalLM

    common: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "sliding_window": WINDOW,
        "eos_token_id": 1,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "initializer_range": 0.25,
    }
    types = ["sliding_attention", "full_attention", "sliding_attention"]
    mixed = SmolLM3Config(num_hidden_layers=3, use_sliding_window=True, layer_types=types, **common)
    made = {}
    model_class: Any
    for name, model_class, config in (
        ("mixed", SmolLM3ForCausalLM, mixed),
        ("window", MistralForCausalLM, MistralConfig(num_hidden_layers=2, **common)),
    ):
        torch.manual_seed(7)
        model: Any = model_class(config)
        made[name] = tmp_path_factory.mktemp(f"tiny-{name}")
        model.save_pretrained(made[name])
    return made


@pytest.fixture(scope="module")
def expected(models: dict[str, Path]) -> dict[str, list[list[int]]]:
    """transformers' greedy tokens, each prompt alone and without a cache; their choices are far from ties."""
    import torch
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    found: dict[str, list[list[int]]] = {}
    for name, path in models.items():
        model = auto.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        found[name] = []
        for prompt in PROMPTS:
            ids = list(prompt)
            with torch.inference_mode():
                for _ in range(NEW):
                    top = model(torch.tensor([ids])).logits[0, -1].topk(2)
                    assert float(top.values[0] - top.values[1]) >= 1e-3, (
                        f"a near tie within reach: {name}, {prompt[:3]}"
                    )
                    ids.append(int(top.indices[0]))
            found[name].append(ids[len(prompt) :])
    return found


def windowed(path: Path, **args: Any) -> Engine:
    engine = tiny(path, **{"max_running_requests": 8, "max_prefill_tokens": 64, **args})
    poison(engine)
    return engine


def poison(engine: Engine) -> None:
    """The dummy pages hold NaN: nothing that is read may lie there."""
    for tensors in worker_of(engine).kv.values():
        for layers in tensors.tensors.values():
            for tensor in layers:
                tensor[0] = float("nan")


def scheduler_of(engine: Engine) -> Any:
    return engine._runtime.scheduler  # type: ignore[union-attr]


def worker_of(engine: Engine) -> Any:
    worker = scheduler_of(engine)._worker.worker
    return getattr(worker, "_worker", worker)


@pytest.mark.parametrize("row", ROWS, ids=["-".join(map(str, row.values())) for row in ROWS])
def test_tokens_are_the_references(
    models: dict[str, Path],
    expected: dict[str, list[list[int]]],
    row: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, composition, pool = row["model"], row["composition"], row["pool"]
    args = {key: row[key] for key in ("page_size", "event_loop")}
    args["max_total_tokens"] = 208 if pool == "small" else 4096
    args["max_prefill_tokens"], args["chunked_prefill_size"] = row["chunking"]
    if pool == "narrow":
        monkeypatch.setattr("jackfield.model_executor.pool_sizes.WINDOW_SHARE", 0.0)
    if pool != "large":
        args["schedule_conservativeness"] = 0.01
    with windowed(
        models[name],
        cache_policy=row["cache"],
        schedule_policy="fcfs",
        enable_deterministic_inference=row["deterministic"],
        **args,
    ) as engine:
        limits = worker_of(engine).limits
        assert limits.window == WINDOW
        assert 0 < limits.window_slots <= (limits.total_slots if pool == "small" else limits.total_slots / 2)
        if composition == "one by one":
            answers = [engine.generate(input_ids=prompt, sampling_params=GREEDY) for prompt in PROMPTS]
        else:
            if composition == "warm":
                engine.generate(input_ids=PROMPTS, sampling_params={**GREEDY, "max_new_tokens": 3})
            answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
        assert [answer["output_ids"] for answer in answers] == expected[name]
        if pool == "small" and composition != "one by one":
            assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0
        assert_alive(engine)


def test_the_window_pool_is_small_and_holds_a_crowd(
    models: dict[str, Path], expected: dict[str, list[list[int]]]
) -> None:
    """Eight requests of up to 190 tokens each hold no more of the window pool than their windows, chunks and pages."""
    rows, chunk, page = 8, 16, 4
    with windowed(models["mixed"], page_size=page, chunked_prefill_size=chunk, cache_policy="chunk") as engine:
        memory = scheduler_of(engine)._memory
        assert worker_of(engine).kv["window"].of("k", 0).shape[0] < worker_of(engine).kv["full"].of("k", 1).shape[0] / 4
        seen = watch(engine, lambda: memory.window.pool.total - memory.window.pool.available())
        prompts = [*PROMPTS, *PROMPTS[1:4]]
        answers = engine.generate(input_ids=prompts, sampling_params=GREEDY)
        assert [answer["output_ids"] for answer in answers] == [*expected["mixed"], *expected["mixed"][1:4]]
        assert max(seen) <= rows * (WINDOW + chunk + 2 * page)
        assert sum(map(len, prompts)) > 4 * max(seen)
        assert_alive(engine)


def watch(engine: Engine, number: Any) -> list[int]:
    """The number before each step, from now on."""
    seen: list[int] = []
    scheduler = scheduler_of(engine)
    launch = scheduler.launch

    def launched(batch: Any, lane: int = 0) -> Any:
        seen.append(number())
        return launch(batch, lane)

    scheduler.launch = launched
    return seen


def test_a_prefix_is_used_only_where_its_window_is_kept(
    models: dict[str, Path], expected: dict[str, list[list[int]]]
) -> None:
    """Many prompts push the components of an old one out of the window pool, and its full KV stays. The next request over it
    is right whatever it finds, and brings back what it computed."""
    with windowed(models["mixed"], cache_policy="radix", max_running_requests=2, max_total_tokens=4096) as engine:
        first = engine.generate(input_ids=PROMPTS[1], sampling_params=GREEDY)
        assert first["output_ids"] == expected["mixed"][1]
        again = engine.generate(input_ids=PROMPTS[1], sampling_params=GREEDY)
        assert again["meta_info"]["cached_tokens"] == len(PROMPTS[1]) - 1
        for i in range(8):
            engine.generate(input_ids=[i + 2, *SHARED], sampling_params={**GREEDY, "max_new_tokens": 1})
        tree = scheduler_of(engine)._memory._cache
        bare = sum(node.length for node in tree.tree.nodes() if not node.window)
        assert bare > 100, "nothing was evicted from the window pool"
        answer = engine.generate(input_ids=[*PROMPTS[1], 7], sampling_params=GREEDY)
        assert answer["meta_info"]["cached_tokens"] < len(PROMPTS[1])
        answer = engine.generate(input_ids=[*PROMPTS[1], 8], sampling_params=GREEDY)
        assert answer["meta_info"]["cached_tokens"] == len(PROMPTS[1])
        answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
        assert [answer["output_ids"] for answer in answers] == expected["mixed"]
        assert_alive(engine)


def test_beside_kv_tiers_every_layer_keeps_everything(
    models: dict[str, Path], expected: dict[str, list[list[int]]]
) -> None:
    """A block of a tier is of all layers; so there is no window pool, and what a tier brings back is right."""
    with windowed(
        models["mixed"], kv_tier=["host"], page_size=4, kv_tier_block_tokens=16, max_total_tokens=256
    ) as engine:
        assert worker_of(engine).limits.window is None
        for _ in range(2):
            answers = [engine.generate(input_ids=prompt, sampling_params=GREEDY) for prompt in PROMPTS]
            assert [answer["output_ids"] for answer in answers] == expected["mixed"]
        assert_alive(engine)
