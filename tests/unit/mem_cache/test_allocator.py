from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jackfield.mem_cache.allocator import OutOfSlots, TokenToKVPoolAllocator


def test_slots_begin_behind_the_dummy_page_and_are_consecutive() -> None:
    pool = TokenToKVPoolAllocator(32, 4)
    assert pool.available() == 32
    assert pool.alloc(2).tolist() == list(range(4, 12))
    assert pool.alloc(6).tolist() == list(range(12, 36))
    assert pool.available() == 0


def test_more_than_there_is_takes_nothing() -> None:
    pool = TokenToKVPoolAllocator(8, 4)
    pool.alloc(1)
    with pytest.raises(OutOfSlots, match="2 pages wanted, 1 of 2"):
        pool.alloc(2)
    assert pool.available() == 4
    assert pool.alloc(0).tolist() == []


@pytest.mark.parametrize(
    ("page_size", "slots", "message"),
    [
        (4, [4, 5, 6], "whole pages"),
        (4, [4, 5, 7, 6], "whole pages"),
        (4, [5, 6, 7, 8], "whole pages"),
        (4, [0, 1, 2, 3], "do not belong"),
        (4, [36, 37, 38, 39], "do not belong"),
        (4, [4, 5, 6, 7, 4, 5, 6, 7], "twice in one call"),
        (4, [32, 33, 34, 35], "free already"),
        (1, [0], "do not belong"),
        (1, [33], "do not belong"),
        (1, [-3], "do not belong"),
        (1, [20], "free already"),
        (1, [1, 1], "twice in one call"),
    ],
)
def test_what_was_not_handed_out_is_refused_and_changes_nothing(page_size: int, slots: list[int], message: str) -> None:
    pool = TokenToKVPoolAllocator(32, page_size)
    pool.alloc(8 // page_size)
    before = pool.available()
    with pytest.raises(ValueError, match=message):
        pool.free(np.array(slots, dtype=np.int32))
    assert pool.available() == before


def test_double_free_is_refused() -> None:
    pool = TokenToKVPoolAllocator(8, 2)
    slots = pool.alloc(2)
    pool.free(slots)
    with pytest.raises(ValueError, match="free already"):
        pool.free(slots[:2])


def test_freed_runs_come_out_consecutive_again() -> None:
    pool = TokenToKVPoolAllocator(64, 4)
    pool.alloc(4)
    run = pool.alloc(4)
    pool.alloc(4)
    pool.free(run.reshape(4, 4)[::-1].reshape(-1))
    assert pool.alloc(4).tolist() == run.tolist()


def test_compact_brings_the_lowest_pages_to_the_front() -> None:
    pool = TokenToKVPoolAllocator(16, 1)
    slots = pool.alloc(16)
    for slot in np.random.default_rng(0).permutation(slots):
        pool.free(np.array([slot], dtype=np.int32))
    pool.compact()
    assert pool.alloc(16).tolist() == slots.tolist()


@pytest.mark.parametrize(("total", "page_size"), [(0, 1), (3, 4), (10, 4), (-4, 4), (4, 0)])
def test_a_pool_of_broken_pages_is_refused(total: int, page_size: int) -> None:
    with pytest.raises(ValueError, match=r"page"):
        TokenToKVPoolAllocator(total, page_size)


class AllocatorMachine(RuleBasedStateMachine):
    """Against a set of slots: nothing is handed out twice, and the count is exact."""

    @initialize(page_size=st.sampled_from([1, 2, 16]), pages=st.integers(1, 20))
    def start(self, page_size: int, pages: int) -> None:
        self.page_size = page_size
        self.total = pages * page_size
        self.pool = TokenToKVPoolAllocator(self.total, page_size)
        self.out: list[int] = []

    @rule(pages=st.integers(0, 8))
    def alloc(self, pages: int) -> None:
        if pages * self.page_size > self.pool.available():
            with pytest.raises(OutOfSlots):
                self.pool.alloc(pages)
            return
        slots = self.pool.alloc(pages)
        assert slots.dtype == np.int32
        assert len(slots) == pages * self.page_size
        assert not set(slots.tolist()) & set(self.out)
        assert all(self.page_size <= slot < self.page_size + self.total for slot in slots.tolist())
        self.out += slots.tolist()

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        pages = data.draw(st.lists(st.sampled_from(self.out[:: self.page_size]), min_size=1, unique=True))
        slots = [page + i for page in pages for i in range(self.page_size)]
        self.pool.free(np.array(slots, dtype=np.int32))
        gone = set(slots)
        self.out = [slot for slot in self.out if slot not in gone]

    @rule()
    def compact(self) -> None:
        self.pool.compact()

    @invariant()
    def the_count_is_exact(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.available() == self.total - len(self.out)
            everything = np.arange(self.total + 2 * self.page_size, dtype=np.int32)
            assert set(np.flatnonzero(self.pool.in_use(everything)).tolist()) == set(self.out)


TestAllocatorMachine = AllocatorMachine.TestCase
TestAllocatorMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
