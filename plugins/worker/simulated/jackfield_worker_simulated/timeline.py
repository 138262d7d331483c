"""When steps end: on the virtual clock, on the wall clock, or at once. Steps run one behind the other."""

from __future__ import annotations

import time
from typing import Protocol

from jackfield.hookspecs import VirtualClock


class Timeline(Protocol):
    def book(self, seconds: float) -> float:
        """A step of this length begins as soon as it can. Returns when it ends, on this timeline's own clock."""
        ...

    def passed(self, end: float) -> bool:
        """Whether that time has come."""
        ...

    def wait(self, end: float, timeout: float | None) -> None:
        """Until `end`. Raises TimeoutError after `timeout` seconds."""
        ...


class VirtualTime:
    """Waiting moves the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._busy_until = clock.now()

    def book(self, seconds: float) -> float:
        self._busy_until = max(self._clock.now(), self._busy_until) + seconds
        return self._busy_until

    def passed(self, end: float) -> bool:
        return self._clock.now() >= end

    def wait(self, end: float, timeout: float | None) -> None:
        now = self._clock.now()
        if timeout is not None and end > now + timeout:
            self._clock.advance_to(now + timeout)
            raise TimeoutError(f"the step ends in {end - now:.6f} s of virtual time, {timeout} s were allowed")
        self._clock.advance_to(end)


class WallTime:
    """Waiting sleeps."""

    def __init__(self) -> None:
        self._busy_until = time.monotonic()

    def book(self, seconds: float) -> float:
        self._busy_until = max(time.monotonic(), self._busy_until) + seconds
        return self._busy_until

    def passed(self, end: float) -> bool:
        return time.monotonic() >= end

    def wait(self, end: float, timeout: float | None) -> None:
        left = end - time.monotonic()
        if timeout is not None and left > timeout:
            time.sleep(max(0.0, timeout))
            raise TimeoutError(f"the step ends in {left:.6f} s, {timeout} s were allowed")
        if left > 0:
            time.sleep(left)


class NoTime:
    """Every step ends when it begins."""

    def book(self, seconds: float) -> float:
        return 0.0

    def passed(self, end: float) -> bool:
        return True

    def wait(self, end: float, timeout: float | None) -> None:
        return None
