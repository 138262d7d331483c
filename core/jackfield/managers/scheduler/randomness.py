"""Where every random number of the scheduler comes from: a hash of the run's seed and a counter, so that the same run
gives the same numbers whatever else happened in between."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """A 63-bit number from these integers (splitmix64's finaliser over each). 63 bits, so that it fits any signed field."""
    state = 0
    for part in parts:
        state = (state + 0x9E3779B97F4A7C15 + (part & _MASK)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


def request_seed(run_seed: int, uid: int, asked: int | None) -> int:
    """The seed of a request's draws: its own if it has one."""
    return asked & _MASK if asked is not None else mix(run_seed, 1, uid)


def step_seed(run_seed: int, step: int) -> int:
    """`SchedulerView.seed` of a step."""
    return mix(run_seed, 2, step)
