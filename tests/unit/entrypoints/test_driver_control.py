"""A control request whose answer comes too late leaves nothing behind."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jackfield.entrypoints.driver import Driver
from jackfield.ipc.messages import ControlReply
from jackfield.managers.requests.control_calls import ControlCalls


class Runtime:
    """Moves nothing."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.tokenizer_manager: Any = SimpleNamespace(
            lock=threading.RLock(), control=ControlCalls(SimpleNamespace(send=self.sent.append)), on_news=None
        )
        self._awake = threading.Event()

    def turn(self) -> int:
        return 0

    def wait(self) -> None:
        self._awake.wait()
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    def close(self) -> None:
        pass


def test_a_late_answer_is_dropped() -> None:
    runtime = Runtime()
    driver = Driver(runtime)  # type: ignore[arg-type]
    control: ControlCalls = runtime.tokenizer_manager.control
    try:
        with pytest.raises(TimeoutError):
            driver.control(lambda manager: manager.control.why("x"), timeout=0)
        (request,) = runtime.sent
        control.take(ControlReply(control_id=request.control_id, ok=True))
        assert not control.has_reply(request.control_id)
        assert control._replies == {}
    finally:
        driver.stop()
