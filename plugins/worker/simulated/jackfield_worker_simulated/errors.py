"""The one error of the simulated worker."""

from __future__ import annotations


class SimulationError(AssertionError):
    """A batch that breaks the worker's contract: the scheduler or the cache is wrong. The worker is unusable afterwards."""


def ensure(right: bool, wrong: str) -> None:
    """For messages that cost nothing to build; others are built behind an `if`."""
    if not right:
        raise SimulationError(wrong)
