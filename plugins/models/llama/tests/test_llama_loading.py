"""What happens to a checkpoint's tensors: every problem in one report, tied heads, packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from jackfield.hookspecs import DenseWeight, Shard, Weight
from jackfield.layers.quantization import decode
from jackfield_ops_torch.ops import TorchOps

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
IDS = [int(i) for i in np.random.default_rng(5).integers(0, 96, 20)]
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def plain(name: str, array: np.ndarray[Any, Any], dtype: str = "float32") -> Weight:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Weight(name=name, encoding="plain", dtype=dtype, shape=array.shape, parts={"data": data})


def values(weight: Weight) -> np.ndarray[Any, Any]:
    return weight.parts["data"].view(np.float32).reshape(weight.shape)


def packed(weight: Weight, encoding: str) -> Weight:
    quantised = gguf.quants.quantize(values(weight), getattr(gguf.GGMLQuantizationType, encoding.upper()))
    return replace(weight, encoding=encoding, parts={"data": np.ascontiguousarray(quantised)})


def dense(weight: Weight) -> Weight:
    """The same weight decoded by the gguf package, plain."""
    if weight.encoding == "plain":
        return weight
    kind = getattr(gguf.GGMLQuantizationType, weight.encoding.upper())
    return plain(weight.name, gguf.quants.dequantize(weight.parts["data"], kind).reshape(weight.shape))


@pytest.fixture
def make(rig: Any) -> Callable[..., Any]:
    """tied -> (reference, config, name -> weight)."""

    def made(*, tied: bool = False) -> tuple[Any, dict[str, Any], dict[str, Weight]]:
        reference, directory = rig.checkpoint(LlamaConfig(**SIZES, tie_word_embeddings=tied))
        return reference, rig.config(directory), {w.name: w for w in rig.read_weights(directory)}

    return made


def test_every_problem_stands_in_one_report(rig: Any, make: Any) -> None:
    _, config, weights = make()
    shaped = weights["model.norm.weight"]
    del weights["lm_head.weight"], weights["model.layers.0.mlp.up_proj.weight"]
    weights["model.norm.weight"] = plain("model.norm.weight", np.zeros(63, np.float32))
    weights["model.extra.weight"] = plain("model.extra.weight", np.zeros(3, np.float32))
    weights[Q_PROJ] = replace(weights[Q_PROJ], encoding="iq9_z")
    short = weights["model.layers.0.self_attn.o_proj.weight"]
    weights[short.name] = replace(short, parts={"data": short.parts["data"][:-4]})
    odd = weights["model.layers.0.self_attn.k_proj.weight"]
    weights[odd.name] = replace(odd, dtype="float64")
    given = [*weights.values(), weights["model.embed_tokens.weight"]]
    _, report = rig.make(config, iter(given))
    assert not report.ok
    assert set(report.missing) == {"lm_head.weight", "model.layers.0.mlp.up_proj.weight"}
    assert report.unexpected == ("model.extra.weight",)
    assert report.mis_shaped == {"model.norm.weight": (tuple(shaped.shape), (63,))}
    assert set(report.rejected) == {Q_PROJ, short.name, odd.name, "model.embed_tokens.weight"}
    assert "iq9_z" in report.rejected[Q_PROJ]
    assert f"{short.parts['data'].nbytes - 4} bytes" in report.rejected[short.name]
    assert "float64" in report.rejected[odd.name]
    assert "twice" in report.rejected["model.embed_tokens.weight"]
    assert len(report.problems()) == 8


def test_b76_an_untied_head_that_is_missing_is_fatal_and_listed(rig: Any, make: Any) -> None:
    _, config, weights = make()
    del weights["lm_head.weight"]
    _, report = rig.make(config, iter(weights.values()))
    assert report.missing == ("lm_head.weight",)
    assert report.problems() == ("missing: lm_head.weight",)


@pytest.mark.parametrize("first", [True, False])
def test_b76_a_duplicate_of_a_tied_head_is_accepted_if_equal(rig: Any, make: Any, first: bool) -> None:
    reference, config, weights = make(tied=True)
    assert "lm_head.weight" not in weights
    duplicate = replace(weights["model.embed_tokens.weight"], name="lm_head.weight")
    given = [duplicate, *weights.values()] if first else [*weights.values(), duplicate]
    model, report = rig.make(config, iter(given))
    assert report.ok
    assert report.loaded == len(weights) + 1
    rig.assert_close(rig.logits(model, IDS), rig.reference_logits(reference, IDS))


@pytest.mark.parametrize("first", [True, False])
def test_b76_a_duplicate_that_contradicts_a_tied_head_is_an_error(rig: Any, make: Any, first: bool) -> None:
    _, config, weights = make(tied=True)
    other = values(weights["model.embed_tokens.weight"]).copy()
    other[-1, -1] += 0.5
    duplicate = plain("lm_head.weight", other)
    given = [duplicate, *weights.values()] if first else [*weights.values(), duplicate]
    _, report = rig.make(config, iter(given))
    assert list(report.rejected) == ["lm_head.weight"]
    assert "tie_word_embeddings" in report.rejected["lm_head.weight"]


def test_a_tied_head_needs_its_embedding(rig: Any, make: Any) -> None:
    _, config, weights = make(tied=True)
    duplicate = replace(weights.pop("model.embed_tokens.weight"), name="lm_head.weight")
    _, report = rig.make(config, iter([duplicate, *weights.values()]))
    assert report.missing == ("model.embed_tokens.weight",)


def test_stored_rotary_tables_are_known_and_ignored(rig: Any, make: Any) -> None:
    _, config, weights = make()
    stored = plain("model.layers.0.self_attn.rotary_emb.inv_freq", np.zeros(8, np.float32))
    _, report = rig.make(config, iter([stored, *weights.values()]))
    assert report.ok
    assert report.loaded == len(weights)


class PackedOps(TorchOps):
    """Operators that keep packed weights and multiply with them by decoding at each use."""

    def __init__(self) -> None:
        self.packed: list[DenseWeight] = []

    def pack(self, weight: DenseWeight) -> Any:
        self.packed.append(weight)
        return weight

    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        data = weight.data if weight.encoding == "plain" else decode(weight.encoding, weight.data)
        assert data.shape == (weight.out_features, weight.in_features)
        return super().linear(x, data.to(x.dtype), bias)

    def count(self, encoding: str) -> int:
        return sum(weight.encoding == encoding for weight in self.packed)


def quantise_all(weights: dict[str, Weight], encoding: str) -> dict[str, Weight]:
    return {name: packed(w, encoding) if len(w.shape) == 2 else w for name, w in weights.items()}


@pytest.mark.parametrize("encoding", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_packed_weights_give_the_logits_of_their_decoded_values(
    rig: Any, make: Any, encoding: str, kept: bool, tied: bool
) -> None:
    """Kept packed where the operators take the encoding, decoded while loading where they do not."""
    reference, config, weights = make(tied=tied)
    weights = quantise_all(weights, encoding)
    reference.load_state_dict(
        {name: torch.from_numpy(values(dense(w)).copy()) for name, w in weights.items()}, strict=False
    )
    ops = PackedOps() if kept else TorchOps()
    model, report = rig.make(
        config, iter(weights.values()), ops=ops, encodings=("plain", encoding) if kept else ("plain",)
    )
    assert report.ok, report.problems()
    rig.assert_close(rig.logits(model, IDS, ops=ops), rig.reference_logits(reference, IDS))
    if isinstance(ops, PackedOps):
        assert ops.count(encoding) == 4 * SIZES["num_hidden_layers"] + 1  # qkv, o, gate_up, down each; and the head


def test_a_tied_head_that_is_not_packed_shares_the_embeddings_memory(rig: Any, make: Any) -> None:
    _, config, weights = make(tied=True)
    weights = quantise_all(weights, "q8_0")
    model, _ = rig.make(config, iter(weights.values()))
    assert model.head.packed.data_ptr() == model.embed.table.data_ptr()


def test_parts_of_different_encodings_become_plain_together(rig: Any, make: Any) -> None:
    """As in q4_k_m files, where v has more bits than q and k."""
    reference, config, weights = make()
    weights = quantise_all(weights, "q4_0")
    for layer in range(SIZES["num_hidden_layers"]):
        name = f"model.layers.{layer}.self_attn.v_proj.weight"
        weights[name] = packed(dense(weights[name]), "q8_0")
    reference.load_state_dict({n: torch.from_numpy(values(dense(w)).copy()) for n, w in weights.items()})
    ops = PackedOps()
    model, report = rig.make(config, iter(weights.values()), ops=ops, encodings=("plain", "q4_0", "q8_0"))
    assert report.ok
    assert ops.count("plain") == SIZES["num_hidden_layers"]
    rig.assert_close(rig.logits(model, IDS, ops=ops), rig.reference_logits(reference, IDS))


@pytest.mark.parametrize(("size", "plain_layers"), [(2, 0), (4, 2)])
def test_ranks_keep_weights_packed_unless_their_share_cuts_a_block(
    rig: Any, make: Any, size: int, plain_layers: int
) -> None:
    """At 2 ranks o (64 columns) and down (128) are shared in whole blocks of 32; at 4 ranks o is not, down is."""
    _, config, weights = make()
    weights = quantise_all(weights, "q8_0")
    for rank in range(size):
        ops = PackedOps()
        shard = Shard(tp_rank=rank, tp_size=size)
        _, report = rig.make(config, iter(weights.values()), shard=shard, ops=ops, encodings=("plain", "q8_0"))
        assert report.ok
        assert ops.count("plain") == plain_layers


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_a_packed_model_give_the_whole_models_logits(rig: Any, make: Any, size: int) -> None:
    _, config, weights = make()
    weights = quantise_all(weights, "q8_0")
    whole, _ = rig.make(config, iter(weights.values()))
    expected = rig.logits(whole, IDS)
    models = []
    for rank in range(size):
        ops = PackedOps()
        shard = Shard(tp_rank=rank, tp_size=size)
        model, report = rig.make(config, iter(weights.values()), shard=shard, ops=ops, encodings=("plain", "q8_0"))
        assert report.ok
        models.append((model, ops))
    ranks = rig.ranks(size)
    for logits in ranks.run(lambda r: rig.logits(models[r][0], IDS, ops=models[r][1], ranks=ranks, rank=r)):
        rig.assert_close(logits, expected)


def test_loading_does_not_touch_the_given_bytes_and_reads_read_only_memory(rig: Any, make: Any) -> None:
    _, config, weights = make()
    before = {name: w.parts["data"].copy() for name, w in weights.items()}
    for weight in weights.values():
        weight.parts["data"].flags.writeable = False
    _, report = rig.make(config, iter(weights.values()))
    assert report.ok
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight.parts["data"], before[name])
