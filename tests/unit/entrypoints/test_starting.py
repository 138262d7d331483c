"""What a start does with garbage and with free memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jackfield.entrypoints.starting import collector_paused, give_memory_back, keep_what_is_there


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_the_collector_is_off_inside_and_as_it_was_behind() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled(), "the outer one still holds"
    assert gc.isenabled()
    with pytest.raises(RuntimeError), collector_paused():
        raise RuntimeError
    assert gc.isenabled()
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled(), "it was off before"


def test_what_is_there_is_never_looked_at_again() -> None:
    gc.unfreeze()
    keep_what_is_there()
    assert gc.get_freeze_count() > 0


def test_giving_memory_back_changes_nothing_that_is_used() -> None:
    kept = [bytes([number]) * 50_000 for number in range(200)]
    free = [bytes(50_000) for _ in range(200)]
    del free
    give_memory_back()
    assert all(text == bytes([number]) * 50_000 for number, text in enumerate(kept))
