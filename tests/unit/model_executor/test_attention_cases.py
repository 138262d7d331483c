"""The kit that judges attention backends: its reference is right, and it catches what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from jackfield.hookspecs import CORE_LAYOUTS, NHD_PAGED, AttentionLayer, AttentionPlan, KVLayout
from jackfield.testing.attention_cases import AttentionCase, check, prepare
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
