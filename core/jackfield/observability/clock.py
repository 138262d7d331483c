"""The scheduler's time. Everything that schedules takes a `Clock`; nothing there reads the wall clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since an arbitrary start, never going back."""
        ...


class MonotonicClock:
    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """Virtual time: it stands still until somebody moves it. The simulator's clock, and the tests'."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds

    def advance_to(self, when: float) -> None:
        self._now = max(self._now, when)
