"""Random weights: the right names and shapes, the same in every process, and only for what is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from pydantic import ValidationError

from jackfield.hookspecs import LoaderContext, ModelSource, ModelSourceError, Shard
from jackfield_models_loaders import dummy as plugin
from jackfield_models_loaders.dummy_source import _as_bytes
from jackfield_models_loaders.options import DummyOptions

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "dtype": "float32",
}


def source(directory: Path, options: DummyOptions | None = None, **changes: Any) -> ModelSource:
    path = directory / "config.json"
    path.write_text(json.dumps({key: value for key, value in {**CONFIG, **changes}.items() if value is not None}))
    context = LoaderContext(kind="loader", name="dummy", instance="dummy", path=directory, options=options)
    return plugin.jackfield_model_source(context)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"attention_bias": True, "mlp_bias": True},
        {"head_dim": 16},
        {"num_key_value_heads": None},
        {"architectures": ["MistralForCausalLM"], "model_type": "mistral"},
    ],
    ids=str,
)
def test_names_and_shapes_are_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    found = {weight.name: weight.shape for weight in source(tmp_path, **changes).weights(Shard())}
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    theirs = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert found == theirs


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_values_depend_on_name_and_seed_alone(tmp_path: Path, dtype: str) -> None:
    def values(options: DummyOptions | None = None, **changes: Any) -> dict[str, torch.Tensor]:
        return {
            weight.name: torch.from_numpy(weight.parts["data"]).view(getattr(torch, weight.dtype)).reshape(weight.shape)
            for weight in source(tmp_path, options, dtype=dtype, **changes).weights(Shard())
        }

    first, fewer, other = values(), values(num_hidden_layers=1), values(DummyOptions(seed=1))
    for name in fewer:
        assert torch.equal(first[name], fewer[name])
    table = first["model.embed_tokens.weight"].float()
    assert float(table.std()) == pytest.approx(0.02, rel=0.1)
    assert torch.equal(first["model.norm.weight"], torch.ones(32, dtype=first["model.norm.weight"].dtype))
    assert not torch.equal(first["model.layers.0.mlp.up_proj.weight"], first["model.layers.1.mlp.up_proj.weight"])
    assert not torch.equal(table, other["model.embed_tokens.weight"].float())
    wide = values(DummyOptions(scale=0.5))
    assert float(wide["model.embed_tokens.weight"].float().std()) == pytest.approx(0.5, rel=0.1)


def test_bfloat16_is_rounded_as_torch_rounds() -> None:
    values = np.random.default_rng(0).standard_normal(10000, dtype=np.float32)
    ours = torch.from_numpy(_as_bytes(values, "bfloat16")).view(torch.bfloat16)
    assert torch.equal(ours, torch.from_numpy(values).to(torch.bfloat16))


def test_a_config_file_alone_is_enough_and_overrides_apply(tmp_path: Path) -> None:
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(CONFIG))
    context = LoaderContext(
        kind="loader", name="dummy", instance="dummy", path=path, overrides={"num_hidden_layers": 1}
    )
    found = plugin.jackfield_model_source(context)
    assert found.config() == {**CONFIG, "num_hidden_layers": 1}
    assert not [weight for weight in found.weights(Shard()) if "layers.1" in weight.name]
    with pytest.raises(ModelSourceError, match=r"tokenizer\.json"):
        found.tokenizer()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM"),
        ({"architectures": None}, "LlamaForCausalLM"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers is '2'"),
        ({"dtype": "float8"}, "float8"),
    ],
)
def test_refusals_name_the_entry(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelSourceError) as caught:
        source(tmp_path, **changes).weights(Shard())
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_other_paths_are_refused(tmp_path: Path) -> None:
    for name, says in (("model.gguf", "need a directory"), ("", r"config\.json")):
        context = LoaderContext(kind="loader", name="dummy", instance="dummy", path=tmp_path / name)
        with pytest.raises(ModelSourceError, match=says):
            plugin.jackfield_model_source(context)


def test_options_are_checked() -> None:
    wrong: tuple[dict[str, Any], ...] = ({"seed": -1}, {"scale": 0}, {"scale": float("nan")}, {"other": 1})
    for values in wrong:
        with pytest.raises(ValidationError):
            DummyOptions(**values)
