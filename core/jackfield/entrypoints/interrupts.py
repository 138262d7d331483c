"""Holds back signals that would raise in the middle of a step: half a step leaves slots, rows and the worker in disagreement.

Python runs signal handlers on the main thread only, so on any other thread this does nothing.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any]

# The module under `signal`, whose functions turn numbers into enums and back: 20 us a step for nothing.

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Whose handlers commonly raise: Ctrl-C, an orderly end, a time limit."""


class InterruptsHeld:
    """`with InterruptsHeld():` the handlers of HELD run when the block has ended. Not reentrant.

    A second signal during one block is not held: whoever insists wants the end more than the state.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, _Handler] = {}
        self._came: list[tuple[_Handler, int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in HELD:
                handler = _signal.getsignal(number)
                if callable(handler):  # neither the system's default, nor ignored, nor of another language
                    self._handlers[number] = handler
                    _signal.signal(number, self._hold)
        except BaseException:
            self._restore()
            raise

    def __exit__(self, *_: object) -> None:
        self._restore()
        came, self._came = self._came, []
        for handler, number, frame in came:
            handler(number, frame)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers[number]
        if self._came:
            self._came.clear()
            handler(number, frame)
        else:
            self._came.append((handler, number, frame))

    def _restore(self) -> None:
        """A handler that is back already may raise between two of these lines; the others come back all the same."""
        try:
            for number, handler in self._handlers.items():
                if _signal.getsignal(number) == self._hold:
                    _signal.signal(number, handler)
        except BaseException:
            self._restore()
            raise
