"""When requests are sent: so many at a time, at random, in bursts, or as a trace says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.entrypoints.bench.asks import Ask

CLOSED, POISSON, BURSTS, TRACE = "closed", "poisson", "bursts", "trace"

LEAST_REQUESTS, DEFAULT_SECONDS, DEFAULT_BURSTS = 16, 20, 4


@dataclass(frozen=True, kw_only=True)
class Load:
    """closed: `value` requests are open at any time, the next is sent when one has ended. The others are open loops: requests
    come when they come, however the server does. poisson: `value` requests a second on average; bursts: `value` at once, every
    `every_s` seconds; trace: as its file says, `value` times as fast.
    """

    mode: str
    value: float
    every_s: float = 0.0

    def facts(self) -> dict[str, Any]:
        return {"mode": self.mode, "value": self.value} | ({"every_s": self.every_s} if self.mode == BURSTS else {})

    def __str__(self) -> str:
        match self.mode:
            case "closed":
                return f"{self.value:g} at a time"
            case "poisson":
                return f"{self.value:g} requests/s"
            case "bursts":
                return f"{self.value:g} every {self.every_s:g} s"
        return f"trace x {self.value:g}"

    def arrivals(self, asks: Sequence[Ask], seed: str) -> list[float] | None:
        """Seconds after the start at which each is due, ascending; None for a closed loop."""
        match self.mode:
            case "closed":
                return None
            case "poisson":
                draw, now, due = random.Random(seed), 0.0, []
                for _ in asks:
                    due.append(now)
                    now += draw.expovariate(self.value)
                return due
            case "bursts":
                return [number // int(self.value) * self.every_s for number in range(len(asks))]
        return [(ask.arrival_s or 0.0) / self.value for ask in asks]

    @property
    def requests(self) -> int:
        """Of a round where nothing is said."""
        match self.mode:
            case "poisson":
                count = DEFAULT_SECONDS * self.value
            case "bursts":
                count = DEFAULT_BURSTS * self.value
            case _:
                count = 2 * self.value
        return max(LEAST_REQUESTS, round(count))

    @property
    def streams(self) -> int:
        """How many are open at once as far as the load decides it; the server decides it for open loops."""
        return int(self.value) if self.mode in (CLOSED, BURSTS) else 1
