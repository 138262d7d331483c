"""The policies in a whole scheduler: who gets the place, and that nobody is starved."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import PolicyContext, SchedulePolicy
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


@pytest.mark.parametrize("policy", [FirstComeFirstServed, ShortestPrefillFirst])
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), places=st.integers(1, 4))
def test_any_policy_gives_every_request_its_own_tokens(
    policy: type[SchedulePolicy], lengths: list[int], places: int
) -> None:
    run = SchedulerHarness(policy=policy(), policy_needs=CACHED, max_running_requests=places, max_prefill_tokens=16)
    for length in lengths:
        run.submit(list(range(length)), max_new_tokens=3)
    run.run()
    for rid, answer in run.answers.items():
        assert answer.ids == run.expected(rid, 3)
    run.assert_at_rest()


@pytest.mark.parametrize(
    ("name", "kind"), [("fcfs", FirstComeFirstServed), ("shortest-prefill-first", ShortestPrefillFirst)]
)
def test_the_entry_points_make_them(name: str, kind: type) -> None:
    (point,) = entry_points(group="jackfield.schedule_policy", name=name)
    context = PolicyContext(
        kind="schedule_policy", name=name, instance=name, max_running=4, page_size=1, total_slots=64
    )
    assert isinstance(point.load().jackfield_schedule_policy(context=context), kind)
