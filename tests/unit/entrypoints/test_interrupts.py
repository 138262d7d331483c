"""Signals that come in the middle of a step, and the handlers that must be found again after it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jackfield.entrypoints.interrupts import HELD, InterruptsHeld


class Told(Exception):
    pass


def tell(*_: Any) -> None:
    raise Told


@pytest.fixture(params=HELD)
def number(request: Any) -> Iterator[int]:
    before = signal.signal(request.param, tell)
    yield request.param
    signal.signal(request.param, before)


def step(number: int, signals: int) -> Iterator[str]:
    with InterruptsHeld():
        for _ in range(signals):
            signal.raise_signal(number)
        yield "the rest of the step"


def test_a_signal_waits_for_the_end_of_the_block(number: int) -> None:
    one = step(number, 1)
    assert next(one) == "the rest of the step"
    with pytest.raises(Told):
        next(one)
    assert signal.getsignal(number) is tell


def test_a_second_signal_does_not_wait(number: int) -> None:
    with pytest.raises(Told):
        next(step(number, 2))
    assert signal.getsignal(number) is tell


def test_an_error_of_the_block_passes_and_the_handler_is_back(number: int) -> None:
    with pytest.raises(KeyError), InterruptsHeld():
        raise KeyError
    assert signal.getsignal(number) is tell


def test_a_handler_that_the_block_installs_stays(number: int) -> None:
    def other(*_: Any) -> None:
        raise AssertionError

    with InterruptsHeld():
        signal.signal(number, other)
    assert signal.getsignal(number) is other


def test_what_is_ignored_or_left_to_the_system_is_not_touched() -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with InterruptsHeld():
            assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_another_thread_touches_no_handler(number: int) -> None:
    seen: list[Callable[..., Any] | int | None] = []

    def work() -> None:
        with InterruptsHeld():
            seen.append(signal.getsignal(number))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [tell]
