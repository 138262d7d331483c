"""Another schedule policy in the place of the one that runs: nothing drained, nothing lost, and every record says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import RequestTable, SchedulePolicy, SchedulerView, StepRecord
from jackfield.managers.story import story
from jackfield.stack.errors import PluginStop
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.overlap import OverlapLoop
from tests.unit.scheduler.swapping import InstalledPolicies, installed

pytestmark = pytest.mark.goal_row(34)


class Seen(SchedulePolicy):
    """Keeps what `start` was shown."""

    def __init__(self) -> None:
        self.started: list[tuple[list[int], list[int], list[int], SchedulerView]] = []
        self.observed: list[int] = []

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        self.started.append((waiting.uid.tolist(), waiting.cached_tokens.tolist(), running.uid.tolist(), view))

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        return np.arange(len(waiting))[::-1]

    def observe(self, record: StepRecord) -> None:
        self.observed.append(record.step)


class NoStart(ArrivalOrder):
    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        raise ValueError("not with these")


def harness(source: InstalledPolicies | None = None, **more: Any) -> SchedulerHarness:
    source = source or InstalledPolicies()
    return SchedulerHarness(cache=RadixCache(1), policies=source, policy_plugin=source.running.key, **more)


def test_the_new_policy_starts_with_what_is_there_and_orders_from_then_on() -> None:
    source, seen = InstalledPolicies(), Seen()
    source.handed["lpm"] = seen  # whose manifest needs cached_tokens
    run = harness(source, max_running_requests=1)
    run.submit([1, 2, 3, 4], rid="first", max_new_tokens=3)
    run.turn()
    for rid, prompt in (("second", [9]), ("third", [1, 2, 3, 8])):
        run.submit(prompt, rid=rid, max_new_tokens=2)
    run.swap("lpm")
    run.turn()
    ((waiting, cached, running, view),) = seen.started
    assert (waiting, cached, running) == ([2, 3], [0, 3], [1])
    assert (view.step, view.now) == (2, run.clock.now() - 1)
    run.run()
    ends = {rid: run.answers[rid].last.stage_times["queue"] for rid in ("second", "third")}
    assert ends["third"] < ends["second"]  # the new order turns arrival round
    assert seen.observed[0] == 2
    assert all(run.answers[rid].ids == run.expected(rid, n) for rid, n in (("first", 3), ("second", 2), ("third", 2)))
    run.assert_at_rest()


class Failing(ArrivalOrder):
    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        raise ValueError("not today")


def test_what_another_policy_did_under_its_name_is_not_held_against_the_new_one() -> None:
    source, ledger = InstalledPolicies(), FaultLedger(limit=3)
    run = harness(source, ledger=ledger)

    def two_faults() -> None:
        source.handed["lpm"] = Failing()
        run.swap("lpm")
        for _ in range(2):
            run.submit([1, 2], max_new_tokens=1)
            run.turn()

    two_faults()
    run.swap("fcfs")
    two_faults()  # an edited file is swapped in under the same name in this way
    account = ledger.snapshot()["schedule_policy.lpm"]
    assert (account["count"], account["by_scope"]) == (4, {"degrade": 4})
    run.submit([1, 2], max_new_tokens=1)
    with pytest.raises(PluginStop, match="failed 3 times, the limit is 3"):
        run.turn()


def test_every_record_tells_of_the_swap() -> None:
    run = harness(max_running_requests=1)
    run.submit([1, 2], rid="before", max_new_tokens=1)
    run.turn()
    run.submit([3, 4], rid="across", max_new_tokens=4)
    run.turn()
    run.swap("lof")
    run.run()
    assert [reply.detail for reply in run.replies] == [{"changed": True, "epoch": 1}]
    (change,) = run.swaps
    assert (change.epoch, change.previous_hash, change.stack_hash, change.step) == (1, "hash 0", "hash 1", 2)
    assert (change.name, change.previous) == ("lof", "fcfs")
    assert [run.answers[rid].last.stack_epoch for rid in ("before", "across")] == [0, 1]
    assert [decision.epoch for decision in run.scheduler.decisions()] == [0, 0, 1, 1, 1]
    told = run.scheduler.why("across")
    assert (told["epoch"], [swap["policy"] for swap in told["swaps"]]) == (1, ["lof"])
    (event,) = [event for event in told["requests"][0]["events"] if event["event"] == "swapped"]
    assert (event["step"], event["epoch"], event["policy"], event["previous"]) == (2, 1, "lof", "fcfs")
    words = "\n".join(story(told, "across"))
    assert "after step 2 the schedule policy 'lof' took the place of 'fcfs' (stack epoch 1)" in words
    assert "swapped" not in {event["event"] for event in run.scheduler.why("before")["requests"][0]["events"]}


def test_who_ends_by_a_step_that_the_old_policy_decided_has_the_old_epoch() -> None:
    run = harness()
    loop = OverlapLoop(run.scheduler, 2)
    run.submit([1, 2], rid="short", max_new_tokens=1)
    run.submit([3, 4], rid="long", max_new_tokens=6)
    loop.step()
    assert run.scheduler.state().in_flight == 1
    run.swap("lof")
    loop.step()
    loop.step()
    for _ in range(8):
        loop.step()
    loop.settle()
    run.collect()
    assert [run.answers[rid].last.stack_epoch for rid in ("short", "long")] == [0, 1]
    assert run.answers["long"].ids == run.expected("long", 6)
    run.assert_at_rest()


def test_a_policy_that_cannot_start_changes_nothing() -> None:
    source = InstalledPolicies("lpm")
    source.handed["fcfs"] = NoStart()
    run = harness(source, policy_needs=frozenset({"cached_tokens"}), max_running_requests=1)
    run.submit([1, 2, 3], rid="a", max_new_tokens=5)
    run.turn()
    run.submit([1, 2, 3, 4], rid="b", max_new_tokens=2)
    run.turn()
    waiting = run.scheduler._waiting.table
    run.scheduler._planner._admission._hints.renew()
    before = waiting["cached_tokens"].copy(), waiting["hinted"].copy()
    assert before[0].tolist() == [3]
    run.swap("fcfs")
    run.scheduler.ingest()
    run.scheduler.poll()
    run.collect()
    (reply,) = run.replies
    assert not reply.ok
    assert reply.message.endswith("could not start with what runs and waits here: ValueError: not with these")
    assert "schedule_policy plugin 'fcfs'" in reply.message
    assert [before[0].tolist(), before[1].tolist()] == [waiting["cached_tokens"].tolist(), waiting["hinted"].tolist()]
    assert not run.swaps
    run.run()
    assert {answer.last.stack_epoch for answer in run.answers.values()} == {0}
    assert run.scheduler.why("b")["swaps"] == []


def test_an_observer_that_stops_the_replica_stops_it_at_a_swap_too() -> None:
    class Strict:
        def listens(self, hook_name: str) -> bool:
            return hook_name == "jackfield_stack_changed"

        def notify(self, hook_name: str, **arguments: Any) -> None:
            raise PluginStop("plugin observer.x failed and --plugin-faults is 'raise'")

    run = harness(observers=Strict())
    run.swap("lof")
    run.scheduler.ingest()
    with pytest.raises(PluginStop, match="observer"):
        run.scheduler.poll()
    run.collect()
    assert run.replies == []  # not told that it failed, when it is in place


def test_hints_go_with_the_policy_that_needed_them() -> None:
    run = harness(InstalledPolicies("lpm"), policy_needs=frozenset({"cached_tokens"}), max_running_requests=1)
    run.submit([1, 2, 3], max_new_tokens=9)
    run.turn()
    run.submit([1, 2, 3, 4], rid="b", max_new_tokens=2)
    run.scheduler.ingest()
    run.scheduler._planner._admission._hints.renew()
    waiting = run.scheduler._waiting.table
    assert waiting["cached_tokens"].tolist() == [3]
    run.swap("fcfs")
    run.turn()
    assert (waiting["cached_tokens"].tolist(), waiting["hinted"].tolist()) == ([0], [0])
    run.swap("lpm")
    run.turn()
    assert waiting["cached_tokens"].tolist() == [3]
    run.run()
    run.assert_at_rest()


def test_swaps_are_answered_in_order_and_the_same_policy_is_no_swap() -> None:
    run = harness()
    for name in ("lof", "edf", "edf", "nobody", "random"):
        run.swap(name)
    run.run()
    assert [(reply.control_id, reply.ok) for reply in run.replies] == [
        (-1, True), (-2, True), (-3, True), (-4, False), (-5, True)
    ]  # fmt: skip
    assert [reply.detail.get("changed") for reply in run.replies] == [True, True, False, None, True]
    assert run.replies[3].message == "no policy 'nobody'"
    assert [(change.epoch, change.name, change.previous) for change in run.swaps] == [
        (1, "lof", "fcfs"),
        (2, "edf", "lof"),
        (3, "random", "edf"),
    ]


def test_a_scheduler_without_a_source_refuses() -> None:
    run = SchedulerHarness()
    run.swap("lof")
    run.run()
    assert [(reply.ok, "knows no plugins" in reply.message) for reply in run.replies] == [(False, True)]


def test_a_swap_that_stops_for_ever_skipped_requests_keeps_their_counts() -> None:
    """`random` passes some over; who was passed over `max_skips` times goes first under any policy that comes after."""
    run = harness(max_running_requests=2, max_skips=3)
    for i in range(20):
        run.submit([i + 1, 2], max_new_tokens=3, ignore_eos=True)
    for turn in range(400):
        run.swap(("random", "lof", "hrrn", "fcfs")[turn % 4])
        run.turn()
        skips = run.scheduler._waiting.table["skips"]
        assert not len(skips) or skips.max() <= 3
        if not run.scheduler.state().waiting and not run.scheduler.state().running:
            break
    else:
        raise AssertionError("somebody starves")
    assert all(run.answers[rid].ids == run.expected(rid, 3) for rid in run.prompts)


WORKLOADS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 30), st.integers(1, 12), st.integers(0, 2), st.integers(0, 4)),
    min_size=1,
    max_size=12,
)
"""(family of the prompt, its length, new tokens, priority, turns until the next)."""


@given(workload=WORKLOADS, swaps=st.lists(st.sampled_from(sorted(installed())), min_size=1, max_size=30))
@settings(max_examples=20, deadline=None)
def test_answers_are_those_of_a_run_without_swaps(workload: list[tuple[int, ...]], swaps: list[str]) -> None:
    """In a pool so small that requests are retracted, with a swap between any two steps."""

    def run(names: list[str]) -> dict[str, list[int]]:
        run = harness(total_slots=48, max_running_requests=3, max_prefill_tokens=16, max_skips=4)
        left = list(names)
        for family, length, new, priority, turns in workload:
            run.submit(
                [family, *range(length)],
                max_new_tokens=min(new, 47 - length),
                ignore_eos=True,
                priority=priority,
                tenant=str(family),
            )
            for _ in range(turns):
                if left:
                    run.swap(left.pop())
                run.turn()
        for name in left:
            run.swap(name)
            run.turn()
        run.run()  # the harness checks the invariants after every step
        run.assert_at_rest()
        assert [reply.ok for reply in run.replies] == [True] * len(names)
        return {rid: answer.ids for rid, answer in run.answers.items()}

    assert run(swaps) == run([])
