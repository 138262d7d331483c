"""The map of the window pool: what is attached, moved and taken back, and what a worker is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import window_floor
from jackfield.mem_cache.allocator import OutOfSlots
from jackfield.mem_cache.window_pool import WindowPool

PAGE = 4


def slots(*pages: int) -> Any:
    return np.concatenate([np.arange(PAGE, dtype=np.int32) + page * PAGE for page in pages])


def told(pool: WindowPool) -> dict[int, int]:
    writes = pool.take_writes()
    assert writes.pages.dtype == writes.window_pages.dtype == np.int32
    return dict(zip(writes.pages.tolist(), writes.window_pages.tolist(), strict=True))


def test_what_is_attached_has_a_page_of_its_own_until_it_is_taken_back() -> None:
    pool = WindowPool(total_slots=40, window_slots=12, page_size=PAGE)
    assert pool.available() == 12
    pool.attach(slots(7, 2))
    assert pool.available() == 4
    assert pool.has(slots(2, 3, 7)).reshape(-1, PAGE).all(axis=1).tolist() == [True, False, True]
    first = told(pool)
    assert sorted(first) == [2, 7]
    assert len(set(first.values())) == 2
    pool.detach(slots(3, 7))  # 3 had nothing
    assert pool.available() == 8
    assert told(pool) == {7: 0}
    assert told(pool) == {}
    assert pool.problem() is None


def test_a_worker_is_told_the_last_state_once() -> None:
    pool = WindowPool(total_slots=40, window_slots=12, page_size=PAGE)
    pool.attach(slots(1))
    pool.detach(slots(1))
    pool.attach(slots(2, 1))
    pool.detach(slots(2))
    changes = told(pool)
    assert changes[2] == 0
    assert changes[1] == pool.page_of[1] > 0


def test_a_move_takes_the_page_along() -> None:
    pool = WindowPool(total_slots=40, window_slots=12, page_size=PAGE)
    pool.attach(slots(3))
    there = told(pool)[3]
    pool.move(slots(3), slots(9))
    assert told(pool) == {3: 0, 9: there}
    pool.detach(slots(3))
    assert not told(pool)
    assert pool.available() == 8


def test_what_is_wrong_is_refused_and_changes_nothing() -> None:
    pool = WindowPool(total_slots=40, window_slots=12, page_size=PAGE)
    pool.attach(slots(1, 2))
    before = pool.page_of.copy()
    with pytest.raises(OutOfSlots):
        pool.attach(slots(3, 4))
    for source, target in ((slots(3), slots(4)), (slots(1), slots(2)), (slots(1), slots(3, 4))):
        with pytest.raises(ValueError, match="moved"):
            pool.move(source, target)
    assert np.array_equal(pool.page_of, before)
    pool.page_of[5] = pool.page_of[1]
    assert "two owners" in str(pool.problem())
    pool.page_of[5] = pool.page_of[1] = 0
    assert "mapped" in str(pool.problem())


@pytest.mark.parametrize("page", [1, 3, 4, 16])
@pytest.mark.parametrize("window", [1, 2, 5, 16, 17])
def test_the_floor_is_the_first_page_that_is_read(window: int, page: int) -> None:
    """By definition: the next token, at the end of the whole pages or behind it, sees `window` tokens, itself included."""
    for length in range(80):
        whole = length // page * page
        first = max(0, whole - max(window, 2) + 1)
        floor = window_floor(length, window, page)
        assert floor % page == 0
        assert floor <= first < floor + page
        assert whole == 0 or floor < whole
