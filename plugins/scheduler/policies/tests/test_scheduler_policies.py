"""fcfs and shortest-prefill-first in a whole scheduler: who gets the place, and that nobody is starved."""

from __future__ import annotations

import pytest

from jackfield.hookspecs import SchedulePolicy
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_scheduler_policies.fcfs import FirstComeFirstServed
from jackfield_scheduler_policies.shortest_prefill_first import ShortestPrefillFirst

CACHED = frozenset({"cached_tokens"})


def harness(policy: SchedulePolicy, **settings: object) -> SchedulerHarness:
    return SchedulerHarness(policy=policy, policy_needs=CACHED, max_running_requests=1, **settings)  # type: ignore[arg-type]


def finish_order(run: SchedulerHarness) -> list[str]:
    order: list[str] = []
    for _ in range(1000):
        run.turn()
        order += [rid for rid, answer in run.answers.items() if answer.finish is not None and rid not in order]
        if len(order) == len(run.prompts):
            return order
    raise AssertionError("it did not end")


def test_fcfs_serves_in_arrival_order() -> None:
    run = harness(FirstComeFirstServed())
    for length in (30, 3, 20, 1):
        run.submit(list(range(length, 2 * length)), rid=f"{length}", max_new_tokens=2)
    assert finish_order(run) == ["30", "3", "20", "1"]


def test_shortest_prefill_first_serves_short_prompts_first_and_equals_by_arrival() -> None:
    run = harness(ShortestPrefillFirst())
    for i, length in enumerate((30, 3, 20, 3)):
        run.submit([100 * i + j for j in range(length)], rid=f"{i}", max_new_tokens=2)
    assert finish_order(run) == ["1", "3", "2", "0"]


def test_shortest_prefill_first_counts_only_what_is_not_cached() -> None:
    run = harness(ShortestPrefillFirst())
    shared = list(range(40))
    run.submit(shared, rid="warm", max_new_tokens=1)
    run.run()
    run.submit(list(range(500, 510)), rid="cold ten", max_new_tokens=1)
    run.submit([*shared, 7, 8, 9], rid="warm three", max_new_tokens=1)
    assert finish_order(run) == ["warm", "warm three", "cold ten"]


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    run = harness(ShortestPrefillFirst(), max_skips=5, hold_back_tokens=0)
    run.submit(list(range(40)), rid="long", max_new_tokens=1)
    for i in range(60):
        run.submit([500 + i], rid=f"short{i}", max_new_tokens=1)
        run.turn()
        if run.answers.get("long") and run.answers["long"].finish:
            break
    else:
        pytest.fail("the long prompt was never served")
    assert 4 <= i <= 8  # as soon as the bound allows, not before
