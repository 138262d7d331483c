"""One linear layer of several parts: what stays packed, what is decoded, and what is refused where nothing may be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import DenseWeight, Shard, Weight
from jackfield.layers.embedding import VocabEmbedding
from jackfield.layers.head import TiedHead
from jackfield.layers.linear import FusedLinear, LinearPart, Packing
from jackfield.layers.quantization import ENCODINGS, decode
from jackfield.layers.weight_reader import BadWeight
from jackfield_ops_torch.ops import TorchOps

COLUMNS = 64


class Recording(TorchOps):
    """Keeps what it is asked to pack. mixes: whether it packs several encodings together."""

    def __init__(self, *, mixes: bool = False) -> None:
        self.mixes = mixes

    def pack(self, weight: DenseWeight) -> Any:
        return weight

    def pack_mixed(self, parts: Sequence[DenseWeight]) -> Any | None:
        return list(parts) if self.mixes else None


def weight(name: str, encoding: str, rows: int = 4) -> Weight:
    data = np.random.default_rng(rows).integers(0, 60, (rows, COLUMNS * 34 // 32), dtype=np.uint8)
    if encoding == "plain":
        plain = np.arange(rows * COLUMNS, dtype=np.float32).view(np.uint8)
        return Weight(name=name, encoding="plain", dtype="float32", shape=(rows, COLUMNS), parts={"data": plain})
    form = ENCODINGS[encoding]
    data = data[:, : COLUMNS // form.elements * form.nbytes].copy()
    return Weight(name=name, encoding=encoding, dtype="float32", shape=(rows, COLUMNS), parts={"data": data})


def packed(weights: list[Weight], *, columns: tuple[int, int] = (0, COLUMNS), mixes: bool = False, **more: Any) -> Any:
    found: list[Any] = []
    packing = Packing(
        ops=Recording(mixes=mixes),
        encodings=frozenset({"plain", "q8_0", "q4_1"}),
        device="cpu",
        dtype=torch.bfloat16,
        **more,
    )
    parts = [LinearPart(name=one.name, shape=one.shape, rows=(0, one.shape[0]), columns=columns) for one in weights]  # type: ignore[arg-type]
    fused = FusedLinear(parts, packing=packing, install=found.append)
    for one in weights:
        fused.accept(one)
    assert not fused.held
    return found[0]


def decoded(one: Weight) -> torch.Tensor:
    data = torch.from_numpy(one.parts["data"])
    plain = data.view(torch.float32).view(one.shape) if one.encoding == "plain" else decode(one.encoding, data)
    return plain.to(torch.bfloat16)


def test_parts_of_one_encoding_stay_packed_together() -> None:
    for strict in (False, True):
        weights = [weight("q", "q8_0"), weight("k", "q8_0", 2)]
        found = packed(weights, packed_only=strict)
        assert (found.encoding, found.out_features, found.in_features) == ("q8_0", 6, COLUMNS)
        assert torch.equal(found.data, torch.cat([torch.from_numpy(one.parts["data"]) for one in weights]))


def test_mixed_parts_go_together_where_the_operators_can_and_are_decoded_where_not() -> None:
    weights = [weight("q", "q8_0"), weight("k", "q4_1", 2)]
    parts = packed(weights, mixes=True, packed_only=True)
    assert [(one.encoding, one.out_features) for one in parts] == [("q8_0", 4), ("q4_1", 2)]
    found = packed(weights)
    assert found.encoding == "plain"
    assert torch.equal(found.data, torch.cat([decoded(one) for one in weights]))


@pytest.mark.parametrize("second", ["plain", "q5_0"])
def test_one_part_that_must_be_decoded_decodes_the_layer(second: str) -> None:
    weights = [weight("q", "q8_0"), weight("k", second, 2)]
    found = packed(weights, mixes=True)
    assert found.encoding == "plain"
    assert torch.equal(found.data, torch.cat([decoded(one) for one in weights]))


@pytest.mark.parametrize(
    ("weights", "columns", "name", "told"),
    [
        ([weight("q", "q8_0"), weight("k", "q5_0")], (0, 64), "k", "the ops plugin does not take q5_0"),
        ([weight("q", "q8_0"), weight("k", "plain")], (0, 64), None, "q in q8_0 and k in plain make one layer"),
        ([weight("q", "q8_0"), weight("k", "q4_1")], (0, 64), None, "q in q8_0 and k in q4_1 make one layer"),
        ([weight("q", "q8_0")], (0, 48), "q", "columns 0 to 47 cut blocks of q8_0"),
    ],
)
def test_what_must_stay_packed_and_cannot_is_refused(
    weights: list[Weight], columns: tuple[int, int], name: str | None, told: str
) -> None:
    with pytest.raises(BadWeight, match=told) as caught:
        packed(weights, columns=columns, packed_only=True)
    assert caught.value.name == name
    assert "--quantization auto decodes it" in str(caught.value)
    assert packed(weights, columns=columns).encoding == "plain"


def test_a_row_that_the_operators_refuse_is_told_by_its_tensor() -> None:
    """Rows 2 to 5 of q and all of k: row 6 of the whole is the third of k."""

    class Refusing(Recording):
        bad = 0

        def pack(self, weight: DenseWeight) -> Any:
            raise BadWeight("holds a NaN", row=self.bad)

    ops = Refusing()
    packing = Packing(ops=ops, encodings=frozenset({"plain"}), device="cpu", dtype=torch.float32)
    for ops.bad, name, row in ((0, "q", 2), (3, "q", 5), (4, "k", 0), (6, "k", 2)):
        weights = [weight("q", "plain", 6), weight("k", "plain", 3)]
        parts = [
            LinearPart(name=one.name, shape=(one.shape[0], COLUMNS), rows=rows, columns=(0, COLUMNS))
            for one, rows in zip(weights, ((2, 6), (0, 3)), strict=True)
        ]
        fused = FusedLinear(parts, packing=packing, install=lambda _: None)
        fused.accept(weights[0])
        with pytest.raises(BadWeight, match=f"^row {row} holds a NaN$") as caught:
            fused.accept(weights[1])
        assert (caught.value.name, caught.value.row) == (name, row)


def test_plain_weights_may_be_plain_where_others_must_stay_packed() -> None:
    assert packed([weight("o", "plain")], packed_only=True).encoding == "plain"


def test_a_tied_head_must_stay_packed_too() -> None:
    packing = Packing(
        ops=Recording(), encodings=frozenset({"plain"}), device="cpu", dtype=torch.bfloat16, packed_only=True
    )
    embedding = VocabEmbedding("e", 4, COLUMNS, shard=Shard(), device="cpu", dtype=torch.bfloat16)
    head = TiedHead("h", embedding, packing=packing)
    with pytest.raises(BadWeight, match="does not take q8_0"):
        head.accept_embedding(weight("e", "q8_0"))
