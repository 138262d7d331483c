"""How much of a request's possible output is reserved: an estimate that decays while all goes well and jumps after a
retraction. Most requests end long before `max_new_tokens`; who reserves all of it leaves the pool half empty. Knows numbers
only.
"""

from __future__ import annotations

INITIAL = 0.7
FLOOR_FACTOR = 0.14
DECAY_STEPS = 600
STEPS_AHEAD = 20
"""Decode steps that should pass after a retraction before the next one: their tokens are reserved."""

CLIP = 4096
"""Most output tokens of one request that are reserved for ahead of time, unless everything is."""


class NewTokenRatio:
    """value   share of the remaining new tokens that is reserved, > 0; from 1 on the worst case is

    conservativeness 1 starts at 0.7 and falls to 0.098 over 600 decode steps. Above 1 / 0.098 the value never falls below
    1, and then nobody is ever retracted for want of memory.
    """

    def __init__(self, conservativeness: float) -> None:
        self._initial = INITIAL * conservativeness
        self.floor = self._initial * FLOOR_FACTOR
        self._decay = (self._initial - self.floor) / DECAY_STEPS
        self.value = self._initial

    @property
    def never_retracts(self) -> bool:
        """Whether the worst case of every request is reserved at all times."""
        return self.floor >= 1

    def decoded(self) -> None:
        """A decode step found the memory that it needs."""
        self.value = max(self.floor, self.value - self._decay)

    def retracted(self, *, running: int, output_tokens: int, max_new_tokens: int) -> None:
        """Requests were retracted. Of those that go on: how many, their tokens so far, and the sum of their caps."""
        estimate = (output_tokens + STEPS_AHEAD * running) / (max_new_tokens + 1)
        self.value = max(self.floor, min(1.0, estimate))

    def reset(self) -> None:
        """Nothing is open: what was learned belongs to requests that are gone."""
        self.value = self._initial
