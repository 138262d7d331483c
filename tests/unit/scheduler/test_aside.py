"""Work aside: its result, its error whatever that is, and its end in time even if it has none."""

from __future__ import annotations

import threading

import pytest

from jackfield.managers.scheduler.aside import aside


def test_what_it_gives_and_what_it_raises() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert aside(lambda: 3, "t", limit=60).result(60) == 3
    assert isinstance(aside(interrupted, "t", limit=60).exception(60), KeyboardInterrupt)


def test_work_without_end_is_given_up() -> None:
    end = threading.Event()
    try:
        late = aside(end.wait, "without-end", limit=0.01)
        with pytest.raises(TimeoutError, match=r"had not answered after 0\.01 seconds"):
            late.result(60)
        (worker,) = (thread for thread in threading.enumerate() if thread.name == "without-end")
        assert worker.daemon
    finally:
        end.set()
        worker.join()
    assert late.exception() is not None
