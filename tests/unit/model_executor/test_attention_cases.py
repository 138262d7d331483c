"""The kit that judges attention backends: its reference is right, and it catches what is wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from jackfield.hookspecs import CORE_LAYOUTS, NHD_PAGED, AttentionLayer, AttentionPlan, KVLayout, KVTensors
from jackfield.testing.attention_cases import AttentionCase, assert_same_kv, check, prepare
from jackfield.testing.reference import reference_attention, write_slots
from jackfield_attention_torch.backend import TorchAttention

CASE = AttentionCase(lengths=((6, 3), (0, 5), (9, 1)), layout=NHD_PAGED, page_size=2)


@pytest.mark.parametrize("layout", CORE_LAYOUTS.values(), ids=CORE_LAYOUTS)
def test_the_reference_is_dense_attention(layout: KVLayout) -> None:
    """One row without a prefix, whose tokens lie in order: nothing is left of paging, and torch can judge."""
    prepared = prepare(AttentionCase(lengths=((0, 9),), layout=layout, page_size=4, dtype=torch.float64))
    row = int(prepared.batch.rows[0])
    for role, values in (("k", prepared.k), ("v", prepared.v)):
        write_slots(prepared.kv, role, 0, prepared.batch.out_slots["full"], values)
    q, k, v = (x.transpose(0, 1)[None] for x in (prepared.q, prepared.k, prepared.v))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
    length = np.array([9], dtype=np.int32)
    rows = np.array([row], dtype=np.int32)
    table = prepared.context.tables["full"]
    found = reference_attention(prepared.case.layer, prepared.kv, table, rows, length, length, prepared.q)
    torch.testing.assert_close(found, wanted)


class Broken(TorchAttention):
    """Wrong in one way, named by the class that derives from it."""

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        self.spoil(plan)
        super().attend(plan, layer, q, k, v, out)

    def spoil(self, plan: Any) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e5m2, torch.float32])
def test_kv_that_differs_is_told_with_its_place_and_both_values(dtype: torch.dtype) -> None:
    """A value that was not saturated stands in the right place: whoever reads "page 3" alone looks for a wrong slot."""
    prepared = prepare(CASE)
    pools = {name: replace(kv, tensors=cast(kv, dtype)) for name, kv in prepared.pools.items()}
    wanted = {name: replace(kv, tensors=cast(kv, dtype)) for name, kv in pools.items()}
    assert_same_kv(pools, wanted)
    pools["full"].tensors["v"][0][3, 1, 0, 5], wanted["full"].tensors["v"][0][3, 1, 0, 5] = math.inf, 7.0
    pools["full"].tensors["v"][0][0].zero_()  # the dummy page
    text = r"the v of layer 0 \(group 'full'\).*in page 3: inf stands where 7 belongs \(at \[1, 0, 5\] of the page"
    with pytest.raises(AssertionError, match=text):
        assert_same_kv(pools, wanted)


def cast(kv: KVTensors, dtype: torch.dtype) -> dict[str, tuple[torch.Tensor, ...]]:
    return {role: tuple(one.to(dtype, copy=True) for one in ones) for role, ones in kv.tensors.items()}


class LeavesARowOut(Broken):
    def spoil(self, plan: Any) -> None:
        plan.buckets.pop()


class ReadsOneSlotTooFar(Broken):
    def spoil(self, plan: Any) -> None:
        for bucket in plan.buckets:
            for view in bucket.views.values():
                view.slots[:, -1] = 0  # the dummy page


class ShiftsTheQueries(Broken):
    def spoil(self, plan: Any) -> None:
        for bucket in plan.buckets:
            bucket.tokens.copy_(bucket.tokens.roll(1))


class WritesElsewhere(Broken):
    def spoil(self, plan: Any) -> None:
        plan.out_slots = {name: slots.flip(0) for name, slots in plan.out_slots.items()}


@pytest.mark.parametrize("wrong", [LeavesARowOut, ReadsOneSlotTooFar, ShiftsTheQueries, WritesElsewhere])
def test_a_wrong_backend_is_caught(wrong: type[TorchAttention]) -> None:
    check(CASE, TorchAttention)
    with pytest.raises(AssertionError):
        check(CASE, wrong)
