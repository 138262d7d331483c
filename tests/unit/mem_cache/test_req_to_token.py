from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import RowWrites
from jackfield.mem_cache.accounting import SlotAccounts, pages_of, round_down, round_up
from jackfield.mem_cache.req_to_token import OutOfRows, ReqToTokenPool


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def replay(table: np.ndarray, writes: RowWrites) -> None:
    at = 0
    for row, start, length in zip(writes.rows, writes.starts, writes.lengths, strict=True):
        table[row, start : start + length] = writes.slots[at : at + length]
        at += length
    assert at == len(writes.slots)


def test_row_0_is_never_handed_out() -> None:
    pool = ReqToTokenPool(4, 8)
    assert sorted(pool.alloc() for _ in range(3)) == [1, 2, 3]
    with pytest.raises(OutOfRows, match="all 3 rows"):
        pool.alloc()


@pytest.mark.parametrize("row", [0, 2, 4, -1])
def test_a_row_that_is_not_taken_cannot_be_given_back(row: int) -> None:
    pool = ReqToTokenPool(4, 8)
    assert pool.alloc() == 1
    with pytest.raises(ValueError, match="not taken"):
        pool.free(row)


def test_writes_are_recorded_once_and_in_order() -> None:
    pool = ReqToTokenPool(4, 8)
    row = pool.alloc()
    pool.write(row, 0, ints(5, 6, 7))
    pool.write(row, 2, ints(9))
    table = np.zeros((4, 8), dtype=np.int32)
    replay(table, pool.take_writes())
    assert np.array_equal(table, pool.table)
    assert table[row, :3].tolist() == [5, 6, 9]
    assert len(pool.take_writes().rows) == 0


def test_unsent_writes_of_a_row_go_with_it() -> None:
    pool = ReqToTokenPool(4, 8)
    first, second = pool.alloc(), pool.alloc()
    pool.write_runs(ints(first, second), ints(0, 0), ints(2, 3), ints(1, 2, 3, 4, 5))
    pool.write(first, 2, ints(9))
    pool.free(first)
    writes = pool.take_writes()
    assert writes.rows.tolist() == [second]
    assert writes.slots.tolist() == [3, 4, 5]


def test_what_lies_beyond_the_context_stays_on_the_host() -> None:
    # 5 tokens of context in pages of 4: a request owns two pages, the worker's table has 5 columns
    pool = ReqToTokenPool(4, 5, page_size=4)
    row = pool.alloc()
    pool.write(row, 0, np.arange(4, 12, dtype=np.int32))
    pool.write_runs(ints(row), ints(4), ints(4), ints(20, 21, 22, 23))
    assert pool.table[row].tolist() == [4, 5, 6, 7, 20, 21, 22, 23]
    table = np.zeros((4, 5), dtype=np.int32)
    replay(table, pool.take_writes())
    assert table[row].tolist() == [4, 5, 6, 7, 20]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), page_size=st.sampled_from([1, 4]), context=st.integers(1, 20), rounds=st.integers(1, 4))
def test_replayed_deltas_always_equal_the_host_copy(
    data: st.DataObject, page_size: int, context: int, rounds: int
) -> None:
    pool = ReqToTokenPool(6, context, page_size)
    rows = [pool.alloc() for _ in range(5)]
    width = pool.table.shape[1]
    table = np.zeros((6, context), dtype=np.int32)
    for _ in range(rounds):
        for _ in range(data.draw(st.integers(0, 3))):
            some = data.draw(st.lists(st.sampled_from(rows), min_size=1, unique=True))
            starts = [data.draw(st.integers(0, width - 1)) for _ in some]
            lengths = [data.draw(st.integers(1, width - start)) for start in starts]
            slots = data.draw(st.lists(st.integers(1, 999), min_size=sum(lengths), max_size=sum(lengths)))
            pool.write_runs(ints(*some), ints(*starts), ints(*lengths), ints(*slots))
        replay(table, pool.take_writes())
        assert np.array_equal(table, pool.table[:, :context])


@given(tokens=st.integers(0, 10_000), page_size=st.integers(1, 64))
def test_page_arithmetic(tokens: int, page_size: int) -> None:
    assert round_down(tokens, page_size) <= tokens <= round_up(tokens, page_size) < tokens + page_size
    assert pages_of(tokens, page_size) * page_size == round_up(tokens, page_size)
    assert round_down(tokens, page_size) % page_size == 0


def test_accounts_name_what_is_wrong() -> None:
    good = SlotAccounts(total=10, free=1, evictable=2, protected=3, pending=0, held=4)
    assert good.problem() is None
    lost = SlotAccounts(total=10, free=1, evictable=2, protected=3, pending=0, held=3)
    assert "9 accounted for" in (lost.problem() or "")
    negative = SlotAccounts(total=10, free=12, evictable=-2, protected=0, pending=0, held=0)
    assert "negative slot counts: evictable" in (negative.problem() or "")
