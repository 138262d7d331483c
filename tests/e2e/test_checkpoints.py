"""One model in every layout that checkpoints come in: the answers are the same (case B76)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.config.errors import ConfigurationError
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive

# Long: a wrong rope base hardly shows in a short prompt.
PROMPT = [(i * 37 + i // 13) % 120 + 3 for i in range(2000)]
GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied Llama with a rope base of 100,000, as transformers 5 writes it, with a tokenizer and a template file."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        eos_token_id=1,
        bos_token_id=0,
        initializer_range=0.2,
    )
    path = tmp_path_factory.mktemp("checkpoint")
    LlamaForCausalLM(config).save_pretrained(path)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(128)}, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "w1"}))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


def reference(path: Path) -> list[int]:
    import torch
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    ids = list(PROMPT)
    for _ in range(GREEDY["max_new_tokens"]):
        with torch.inference_mode():
            top = model(torch.tensor([ids])).logits[0, -1].topk(2)
        assert float(top.values[0] - top.values[1]) >= 1e-3, "a near tie: choose another seed"
        ids.append(int(top.indices[0]))
    return ids[len(PROMPT) :]


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[int]:
    return reference(checkpoint)


def edit(path: Path, **changes: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    for key, value in changes.items():
        if value is None:
            config.pop(key, None)
        else:
            config[key] = value
    (path / "config.json").write_text(json.dumps(config))


def as_it_is(path: Path) -> None:
    pass


def with_explicit_head(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path / "model.safetensors")


def in_the_old_layout(path: Path) -> None:
    edit(path, rope_parameters=None, rope_theta=100000.0, dtype=None, torch_dtype="float32")
    (path / "chat_template.jinja").unlink()
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "w1", "chat_template": TEMPLATE}))


def sharded(path: Path) -> None:
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(path)
    (path / "model.safetensors").unlink()
    model.save_pretrained(path, max_shard_size="60KB")
    assert len(list(path.glob("*.safetensors"))) > 1


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def start(path: Path) -> Engine:
    return Engine(model_path=str(path), dtype="float32", check_invariants="step", max_total_tokens=8192)


@pytest.mark.parametrize("change", [as_it_is, with_explicit_head, in_the_old_layout, sharded])
def test_b76_each_layout_gives_the_references_tokens(
    copy: Path, expected: list[int], change: Callable[[Path], None]
) -> None:
    change(copy)
    with start(copy) as engine:
        assert engine.generate(input_ids=PROMPT, sampling_params=GREEDY)["output_ids"] == expected
        assert engine.apply_chat_template([{"role": "user", "content": "w5 w6"}]) == [5, 6]
        assert_alive(engine)


def test_b76_a_removed_rope_base_is_the_familys_default_as_in_transformers(copy: Path, expected: list[int]) -> None:
    edit(copy, rope_parameters=None, rope_theta=None)
    by_default = reference(copy)
    assert by_default != expected, "the prompt does not tell the bases apart"
    with start(copy) as engine:
        assert engine.generate(input_ids=PROMPT, sampling_params=GREEDY)["output_ids"] == by_default


def test_b76_without_a_template_chat_is_refused_and_completion_works(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    with start(copy) as engine:
        with pytest.raises(RequestError, match="template") as refused:
            engine.apply_chat_template([{"role": "user", "content": "w5"}])
        assert refused.value.status_code == 400
        assert engine.generate("w5 w6", GREEDY)["meta_info"]["prompt_tokens"] == 2
        assert_alive(engine)


def test_b76_missing_weights_are_all_listed_and_fatal(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(copy / "model.safetensors")
    gone = ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"]
    save_file({name: tensor for name, tensor in tensors.items() if name not in gone}, copy / "model.safetensors")
    with pytest.raises(ConfigurationError) as refused:
        start(copy)
    assert all(name in str(refused.value) for name in gone)


def test_a_contradicting_head_of_a_tied_model_is_refused(copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(copy / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(ConfigurationError, match=r"lm_head\.weight"):
        start(copy)


@pytest.mark.parametrize("keep", [0, 7, 100, 20000])
def test_a_truncated_file_is_refused_by_name(copy: Path, keep: int) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ConfigurationError, match=r"model\.safetensors"):
        start(copy)
