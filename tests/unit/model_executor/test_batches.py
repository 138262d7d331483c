"""Checks of a batch, the request-to-token table, and the conversion to a ForwardBatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import AttentionMode, ModelWorkerBatch, RowOpen, RowWrites, WorkerLimits
from jackfield.model_executor.batch_check import InvalidBatch, check_batch
from jackfield.model_executor.device import CpuDevice
from jackfield.model_executor.forward_batch import attention_mode, make_forward_batch
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.row_states import RowStates

LIMITS = WorkerLimits(max_rows=6, max_context=32, total_slots=64, page_size=4, vocab_size=100, max_tokens=20)


def ints(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def flags(*values: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array(values, dtype=np.bool_)


def opened(row: int, uid: int = 1, adapter: int = 0) -> RowOpen:
    return RowOpen(row=row, uid=uid, history=ints(1), temperature=0, top_k=0, top_p=1, min_p=0, seed=0, adapter=adapter)


def batch(**changes: Any) -> ModelWorkerBatch:
    fields: dict[str, Any] = {
        "step": 7,
        "rows": ints(3, 1),
        "new_tokens": ints(3, 1),
        "computed": ints(0, 5),
        "token_ids": ints(10, 11, 12, 0),
        "relay": flags(False, True),
        "sample": flags(False, True),
        "writes": RowWrites(rows=ints(3, 1), starts=ints(0, 5), lengths=ints(3, 1), slots=ints(8, 9, 10, 67)),
    }
    return ModelWorkerBatch(**{**fields, **changes})


def test_a_good_batch_passes() -> None:
    check_batch(batch(), LIMITS)


def test_a_batch_without_rows_may_carry_changes() -> None:
    nothing = ModelWorkerBatch(
        step=1,
        rows=ints(),
        new_tokens=ints(),
        computed=ints(),
        token_ids=ints(),
        relay=flags(),
        sample=flags(),
        closed=ints(3),
    )
    check_batch(nothing, LIMITS)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rows": ints(3, 3)}, "`rows` names a row twice"),
        ({"rows": ints(0, 1)}, "row 0, outside 1 .. 5"),
        ({"rows": ints(3, 6)}, "row 6, outside"),
        ({"closed": ints(2, 2)}, "`closed` names a row twice"),
        ({"closed": ints(9)}, "`closed` holds row 9"),
        ({"opened": (opened(2), opened(2))}, "`opened` names a row twice"),
        ({"opened": (opened(2, adapter=4),)}, "adapter 4"),
        ({"new_tokens": ints(3)}, "`new_tokens` has 1 entries for 2 rows"),
        ({"new_tokens": ints(4, 0)}, "`new_tokens` holds 0"),
        ({"new_tokens": ints(20, 1), "token_ids": ints(*range(21))}, "21 new tokens, more than the limit of 20"),
        ({"token_ids": ints(10, 11)}, "2 token ids for 4 new tokens"),
        ({"token_ids": ints(10, -1, 12, 0)}, "token id -1, outside 0 .. 99"),
        ({"token_ids": ints(10, 100, 12, 0)}, "token id 100"),
        ({"computed": ints(-1, 5)}, "`computed` holds -1"),
        ({"computed": ints(30, 5)}, "a row would end at 33, outside 1 .. 32"),
        ({"sample": flags(True)}, "`sample` has 1 entries"),
        ({"wait_for": (4,)}, "tickets"),
        ({"writes": RowWrites(rows=ints(3), starts=ints(0), lengths=ints(2), slots=ints(8))}, "1 slots for runs of 2"),
        ({"writes": RowWrites(rows=ints(3), starts=ints(0, 1), lengths=ints(1), slots=ints(8))}, "unequal number"),
        ({"writes": RowWrites(rows=ints(3), starts=ints(31), lengths=ints(2), slots=ints(8, 9))}, "ends at 33"),
        (
            {"writes": RowWrites(rows=ints(3), starts=ints(0), lengths=ints(1), slots=ints(3))},
            "slot 3, outside 4 .. 67",
        ),
        ({"writes": RowWrites(rows=ints(3), starts=ints(0), lengths=ints(1), slots=ints(68))}, "slot 68, outside"),
        ({"writes": RowWrites(slots=ints(8))}, "slots, but no runs"),
    ],
)
def test_a_broken_batch_is_refused_with_the_step_and_the_number(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidBatch, match=told) as caught:
        check_batch(batch(**changes), LIMITS)
    assert str(caught.value).startswith("step 7: ")


def test_row_states_follow_open_close_and_sampling() -> None:
    states = RowStates(6)

    def go(**fields: Any) -> None:
        step = batch(**{"relay": flags(False, False), "sample": flags(True, True), **fields})
        states.check(step)
        states.apply(step)

    with pytest.raises(InvalidBatch, match="row 3 is in the batch, but is not open"):
        go()
    go(opened=(opened(3, 11), opened(1, 12)))
    with pytest.raises(InvalidBatch, match="opened for 1, but is open already"):
        go(opened=(opened(3),))
    with pytest.raises(InvalidBatch, match="row 1 relays"):
        go(relay=flags(False, True))
    rows = ints(3, 1)
    owners = states.owners(rows)
    assert owners.tolist() == [11, 12]
    assert states.sampled(rows, owners).tolist() == [True, True]
    go(relay=flags(True, True))
    with pytest.raises(InvalidBatch, match="relays"):  # the step that was just launched is not sampled yet
        go(relay=flags(True, True))
    go(closed=ints(1), opened=(opened(1, 13),))
    assert states.sampled(rows, owners).tolist() == [True, False]  # row 1 is another request's by now
    with pytest.raises(InvalidBatch, match="row 1 relays"):
        go(relay=flags(False, True))
    with pytest.raises(InvalidBatch, match="row 1 goes on to 6 tokens, but only 0 of them have a slot"):
        go(closed=ints(1), opened=(opened(1, 14),), writes=RowWrites())
    with pytest.raises(InvalidBatch, match="row 4 is closed, but was not open"):
        go(closed=ints(4))
    with pytest.raises(InvalidBatch, match="row 3 is in the batch"):
        go(closed=ints(3))


def test_a_refused_batch_changes_no_row() -> None:
    states = RowStates(6)
    with pytest.raises(InvalidBatch):
        states.check(batch(opened=(opened(3),)))
    states.check(batch(opened=(opened(3), opened(1)), relay=flags(False, False)))


def test_writes_go_run_by_run() -> None:
    table = ReqToTokenTable(4, 8, CpuDevice())
    table.apply(RowWrites(rows=ints(2, 1, 2), starts=ints(0, 3, 6), lengths=ints(3, 2, 2), slots=ints(*range(10, 17))))
    assert table.slots[2].tolist() == [10, 11, 12, 0, 0, 0, 15, 16]
    assert table.slots[1].tolist() == [0, 0, 0, 13, 14, 0, 0, 0]
    table.apply(RowWrites(rows=ints(2), starts=ints(1), lengths=ints(0), slots=ints()))
    table.clear(ints(2))
    assert table.slots[2].tolist() == [0] * 8
    assert table.slots[1, 3] == 13


def test_forward_batch_fields() -> None:
    table = ReqToTokenTable(6, 32, CpuDevice())
    step = batch()
    table.apply(step.writes)
    newest = torch.tensor([0, 77, 0, 55, 0, 0])
    forward = make_forward_batch(step, table, newest, {"full": table, "window": table})
    assert forward.ids.tolist() == [10, 11, 12, 77]  # the relayed row takes its newest token, the other does not
    assert forward.positions.tolist() == [0, 1, 2, 5]
    attention = forward.attention
    assert attention.mode is AttentionMode.MIXED
    assert attention.rows.tolist() == [3, 1]
    assert attention.q_starts.tolist() == [0, 3, 4]
    assert attention.kv_lens.tolist() == [3, 6]
    assert attention.out_slots["full"].tolist() == attention.out_slots["window"].tolist() == [8, 9, 10, 67]
    assert attention.out_slots["full"].dtype == torch.int64
    assert (attention.rows.dtype, attention.q_starts.dtype, attention.kv_lens.dtype) == (torch.int32,) * 3
    assert (attention.max_q, attention.max_kv) == (3, 6)
    assert attention.host.q_lens.tolist() == [3, 1]
    assert forward.sampled.tolist() == [1]
    assert forward.last_tokens.tolist() == [3]


def test_the_batch_is_only_read() -> None:
    step = batch()
    for array in (step.rows, step.new_tokens, step.computed, step.token_ids, step.relay, step.sample):
        array.flags.writeable = False
    table = ReqToTokenTable(6, 32, CpuDevice())
    table.apply(replace(step).writes)
    make_forward_batch(step, table, torch.tensor([0, 77, 0, 0, 0, 0]), {"full": table})
    assert step.token_ids.tolist() == [10, 11, 12, 0]


@pytest.mark.parametrize(
    ("q_lens", "mode"),
    [
        ((1, 1), AttentionMode.DECODE),
        ((2, 3), AttentionMode.EXTEND),
        ((1, 3), AttentionMode.MIXED),
        ((4,), AttentionMode.EXTEND),
    ],
)
def test_attention_mode(q_lens: tuple[int, ...], mode: AttentionMode) -> None:
    assert attention_mode(ints(*q_lens)) is mode
