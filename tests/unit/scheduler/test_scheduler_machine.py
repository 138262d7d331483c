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
PHASES = [Phase.generate, Phase.shrink]
DRIVERS: list[type[Moves]] = [PhaseMachine, LoopMachine]


@pytest.mark.soak
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_scheduler_machine(family: str, driver: type[Moves], soak_factor: int, soak_counts: Counter[str]) -> None:
    totals = Totals()
    machine = type(f"{driver.__name__}_{family}", (driver,), {"family": family, "totals": totals})
    quota = -(-STEPS * soak_factor // (len(FAMILIES) * len(DRIVERS)))
    while totals.steps < quota:
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
    assert totals.counts["retractions"] > 0, "the pool was never so small that anybody was retracted"
    assert totals.counts["loads"] > 0 or family != "tiers", "nothing was ever loaded from a tier"
