"""The embedded model against transformers on natural text, float32, at every position; B76's copies of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from jackfield.hookspecs import Shard, Weight
from jackfield_models_loaders.gguf_source import GgufSource
from jackfield_models_loaders.safetensors_source import SafetensorsSource

pytestmark = [pytest.mark.model, pytest.mark.slow]

TEXT = (Path(__file__).parents[4] / "LICENSE").read_text()


@pytest.fixture(scope="module")
def source(embedded_model: Path) -> GgufSource:
    return GgufSource(embedded_model)


@pytest.fixture(scope="module")
def ids(source: GgufSource) -> list[int]:
    tokenizer = tokenizers.Tokenizer.from_str(source.tokenizer().tokenizer_json.decode())
    return list(tokenizer.encode(TEXT).ids[:2000])


@pytest.fixture(scope="module")
def expected(reference_model: Any, ids: list[int]) -> torch.Tensor:
    assert len(ids) == 2000
    with torch.inference_mode():
        return torch.as_tensor(reference_model(torch.tensor([ids])).logits[0])


def test_b76_a_the_gguf_file_as_it_is(rig: Any, source: GgufSource, ids: list[int], expected: torch.Tensor) -> None:
    """1, 7, 500 and 2,000 tokens; causal attention makes the shorter prompts' logits the longer one's first rows."""
    model, report = rig.make(source.config(), source.weights(Shard()))
    assert report.ok, report.problems()
    for length in (1, 7, 500, 2000):
        rig.assert_close(rig.logits(model, ids[:length]), expected[:length])


@pytest.mark.parametrize("copy", ["b-explicit-head", "c-old-layout", "d-sharded"])
def test_b76_copies_in_safetensors(
    rig: Any, reference_model: Any, ids: list[int], expected: torch.Tensor, tmp_path: Path, copy: str
) -> None:
    plain: Any = type(reference_model)(reference_model.config)  # one that may be saved: without the GGUF's mark
    plain.load_state_dict(reference_model.state_dict())
    plain.save_pretrained(tmp_path, max_shard_size="100MB" if copy == "d-sharded" else "5GB")
    config_file = tmp_path / "config.json"
    config = {**json.loads(config_file.read_text()), "architectures": ["LlamaForCausalLM"]}
    config.pop("quantization_config", None)
    if copy == "c-old-layout":
        rope = config.pop("rope_parameters")
        config |= {"rope_theta": rope["rope_theta"], "rope_scaling": None, "torch_dtype": config.pop("dtype")}
    config_file.write_text(json.dumps(config))
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (copy == "d-sharded")

    source = SafetensorsSource(tmp_path)
    weights = list(source.weights(Shard()))
    assert "lm_head.weight" not in {weight.name for weight in weights}
    if copy == "b-explicit-head":
        embedding = next(weight for weight in weights if weight.name == "model.embed_tokens.weight")
        weights.insert(0, Weight(**{**vars(embedding), "name": "lm_head.weight"}))
    model, report = rig.make(source.config(), iter(weights))
    assert report.ok, report.problems()
    # Causal attention: a shorter prompt has the longer one's first rows.
    rig.assert_close(rig.logits(model, ids[:500]), expected[:500])


def test_ranks_of_the_embedded_model(rig: Any, source: GgufSource, ids: list[int], expected: torch.Tensor) -> None:
    """B79: three ranks, as many as divide its 9 heads and 3 KV heads."""
    models = []
    for rank in range(3):
        model, report = rig.make(source.config(), source.weights(Shard()), shard=Shard(tp_rank=rank, tp_size=3))
        assert report.ok, report.problems()
        models.append(model)
    ranks = rig.ranks(3)
    prompt = ids[:200]
    for logits in ranks.run(lambda rank: rig.logits(models[rank], prompt, ranks=ranks, rank=rank)):
        rig.assert_close(logits, expected[:200])


def test_bfloat16_is_as_close_to_float32_as_transformers_is(
    rig: Any, reference_model: Any, source: GgufSource, ids: list[int], expected: torch.Tensor
) -> None:
    prompt = ids[:300]
    theirs_model: Any = type(reference_model)(reference_model.config)
    theirs_model.load_state_dict(reference_model.state_dict())
    for parameter in theirs_model.parameters():  # not .to(): that would round the rotary frequencies too
        parameter.data = parameter.data.to(torch.bfloat16)
    theirs = rig.reference_logits(theirs_model.eval(), prompt)
    model, _ = rig.make(source.config(), source.weights(Shard()), dtype="bfloat16")
    ours = rig.logits(model, prompt)
    exact = expected[: len(prompt)]
    assert (ours - exact).norm() <= 1.1 * (theirs - exact).norm()
    agree = np.mean((ours.argmax(-1) == exact.argmax(-1)).numpy())
    assert agree > 0.9
