"""The real scheduler through random arrivals, twins, conversations, aborts, stops, timeouts and flushes, with everything that
must hold checked after each step: once phase by phase, in any order that the contract allows, and once turn by turn under the
event loops. Caches, tiers, policies, gates and workers are those of `machine_setup`."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.scheduler.machine_checks import Totals
from tests.unit.scheduler.machine_moves import LoopMachine, Moves, PhaseMachine
from tests.unit.scheduler.machine_setup import FAMILIES

STEPS = 10_000
"""Scheduler steps of all these tests together, times --soak-factor."""
MOST_QUOTAS = 10
"""Quotas of steps after which what has not happened will not."""
PHASES = [Phase.generate, Phase.shrink]
DRIVERS: list[type[Moves]] = [PhaseMachine, LoopMachine]


@pytest.mark.soak
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_scheduler_machine(family: str, driver: type[Moves], soak_factor: int, soak_counts: Counter[str]) -> None:
    totals = Totals()
    machine = type(f"{driver.__name__}_{family}", (driver,), {"family": family, "totals": totals})
    quota = -(-STEPS * soak_factor // (len(FAMILIES) * len(DRIVERS)))
    # What has to happen at least once is rare enough to be missing now and then from a quota of random steps.
    while totals.steps < quota or (totals.steps < MOST_QUOTAS * quota and _missing(family, totals)):
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=20,
                stateful_step_count=40,
                deadline=None,
                phases=PHASES,
                report_multiple_bugs=False,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
    soak_counts.update(totals.counts)
    assert not _missing(family, totals)


def _missing(family: str, totals: Totals) -> list[str]:
    """What never happened in these steps, though it should have."""
    wanted = ("retractions", "loads") if family == "tiers" else ("retractions",)
    return [what for what in wanted if not totals.counts[what]]
