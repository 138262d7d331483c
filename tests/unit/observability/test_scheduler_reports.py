"""What the scheduler reports, and when."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jackfield.hookspecs import StepOutcome
from jackfield.ipc.messages import AbortRequest, SchedulerReport, StateRequest, WarmUpRequest
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_scheduler_loops.overlap import OverlapLoop


def idle(run: SchedulerHarness) -> None:
    """The turn of a loop that finds nothing."""
    assert run.turn() is not StepOutcome.RAN
    run.collect()


def totals(reports: list[SchedulerReport], name: str) -> int:
    return sum(getattr(report, name) for report in reports)


def test_the_last_step_is_reported_at_once_and_adds_up() -> None:
    run = SchedulerHarness(report_interval=1e9)
    run.submit([1, 2, 3, 4], max_new_tokens=3)
    run.submit([5, 6], max_new_tokens=5)
    run.run()
    first, last = run.reports  # the first step of all, and the one after which nothing is open
    assert (first.steps, first.running, first.waiting) == (1, 2, 0)
    assert (last.running, last.waiting) == (0, 0)
    assert totals(run.reports, "prefill_tokens") == 6
    assert totals(run.reports, "decode_tokens") == 8
    assert last.kv_free + last.kv_evictable == last.kv_total
    assert last.steps == run.scheduler.state().steps


def test_reports_of_a_busy_scheduler_keep_the_interval() -> None:
    run = SchedulerHarness(report_interval=4.0)
    run.submit([1, 2, 3], max_new_tokens=20)
    for _ in range(16):
        run.turn()  # a step takes a second
    run.collect()
    assert [report.steps for report in run.reports] == [1, 5, 9, 13]
    assert [report.seconds for report in run.reports] == [1.0, 4.0, 4.0, 4.0]
    assert totals(run.reports, "decode_tokens") == 13
    run.run()


def test_interval_0_reports_every_step() -> None:
    run = SchedulerHarness(report_interval=0.0)
    run.submit([1, 2, 3], max_new_tokens=4)
    run.run()
    assert [report.steps for report in run.reports] == [1, 2, 3, 4]
    assert [report.decode_tokens for report in run.reports] == [1, 1, 1, 1]
    assert [report.new_steps for report in run.reports] == [1, 1, 1, 1]


def test_idle_time_is_left_out() -> None:
    run = SchedulerHarness(report_interval=1e9)
    for _ in range(2):
        run.submit([1, 2, 3], max_new_tokens=2)
        run.turn()
        run.clock.advance(2.0)
        run.run()
        run.clock.advance(1000.0)
    assert totals(run.reports, "seconds") == 2 * (1.0 + 2.0 + 1.0)  # a step takes a second


def test_an_idle_scheduler_reports_what_changed_once() -> None:
    run = SchedulerHarness(report_interval=1e9, max_running_requests=1)
    run.submit([1, 2, 3], max_new_tokens=50)
    run.turn()
    run.submit([4, 5], max_new_tokens=50, rid="waits")
    run.turn()
    run.collect()
    before = len(run.reports)
    run.inbox.send(AbortRequest(abort_all=True))
    idle(run)
    assert len(run.reports) == before + 1
    assert (run.reports[-1].running, run.reports[-1].waiting) == (0, 0)
    idle(run)
    run.inbox.send(StateRequest(control_id=1))
    idle(run)
    assert len(run.reports) == before + 1


def test_cached_and_evicted_tokens() -> None:
    run = SchedulerHarness(report_interval=0.0, total_slots=64)
    prompt = list(range(10, 30))
    for _ in range(2):
        run.submit(prompt, max_new_tokens=1)
        run.run()
    assert totals(run.reports, "cached_tokens") == 19  # the last token is always computed
    assert totals(run.reports, "prefill_tokens") == 21
    assert totals(run.reports, "evicted_tokens") == 0
    run.submit(list(range(100, 160)), max_new_tokens=1)
    run.run()
    assert totals(run.reports, "evicted_tokens") > 0


def test_durations_only_where_metrics_are_collected() -> None:
    for collect in (False, True):
        run = SchedulerHarness(report_interval=1e9, collect_metrics=collect)
        run.submit([1, 2, 3], max_new_tokens=3)
        run.run()
        told = [seconds for report in run.reports for seconds in report.step_seconds]
        assert len(told) == (3 if collect else 0)
        assert len([s for report in run.reports for s in report.step_cpu_seconds]) == len(told)


class Recorder:
    """Observers that listen to all and note the hooks."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def listens(self, hook_name: str) -> bool:
        return True

    def notify(self, hook_name: str, **arguments: Any) -> None:
        self.heard.append(hook_name)


def test_nobody_hears_of_a_warm_up_and_the_cache_forgets_it() -> None:
    observers = Recorder()
    run = SchedulerHarness(report_interval=0.0, observers=observers)
    run.inbox.send(WarmUpRequest(control_id=1, begin=True))
    run.submit([1, 2, 3, 4, 5], max_new_tokens=3)
    run.run()
    run.inbox.send(WarmUpRequest(control_id=2, begin=False))
    run.scheduler.ingest()
    run.collect()
    assert [(reply.control_id, reply.ok) for reply in run.replies] == [(1, True), (2, True)]
    assert (run.reports, observers.heard) == ([], [])
    assert run.scheduler.state().free == run.scheduler.state().total
    run.submit([1, 2, 3, 4, 5], max_new_tokens=1)
    run.run()
    assert totals(run.reports, "cached_tokens") == 0
    assert totals(run.reports, "prefill_tokens") == 5
    assert totals(run.reports, "new_steps") == 1
    assert "jackfield_batch_committed" in observers.heard


def test_a_warm_up_that_is_not_over_is_said_to_be_open() -> None:
    run = SchedulerHarness()
    run.submit([1, 2, 3], max_new_tokens=9)
    run.turn()
    run.inbox.send(WarmUpRequest(control_id=7, begin=False))
    run.scheduler.ingest()
    run.collect()
    (reply,) = run.replies
    assert not reply.ok
    assert "1 requests run" in reply.message
    run.run()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("interval", [0.0, 1e9])
def test_cpu_of_the_steps_is_what_the_thread_spent_however_many_are_in_flight(depth: int, interval: float) -> None:
    """A clock of the thread that moves by one at each look: two a step, and no step has what another one had."""
    run = SchedulerHarness(report_interval=interval, collect_metrics=True)
    looks = itertools.count(1000.0)
    run.scheduler._reporter._cpu = lambda: next(looks)
    loop = OverlapLoop(run.scheduler, depth)
    for _ in range(2):
        run.submit([1, 2, 3], max_new_tokens=8)
        while loop.step() is StepOutcome.RAN:
            run.collect()
    cpu = [seconds for report in run.reports for seconds in report.step_cpu_seconds]
    assert len(cpu) == run.scheduler.state().steps >= 16
    assert min(cpu) > 0
    assert sum(cpu) < next(looks) - 1000.0


def test_steps_that_several_threads_run_have_no_negative_cpu() -> None:
    """In one process each caller runs the scheduler for a while, and each thread has a clock of its own."""
    run = SchedulerHarness(report_interval=0.0, collect_metrics=True)
    clocks: dict[int, itertools.count[int]] = {}
    run.scheduler._reporter._cpu = lambda: next(
        clocks.setdefault(threading.get_ident(), itertools.count(1000 - 100 * len(clocks)))
    )
    loop = OverlapLoop(run.scheduler, 2)
    run.submit([1, 2, 3], max_new_tokens=20)
    with ThreadPoolExecutor(1) as other:
        for _ in range(6):
            loop.step()
            other.submit(loop.step).result()
            other.submit(loop.step).result()
    run.collect()
    cpu = [seconds for report in run.reports for seconds in report.step_cpu_seconds]
    assert len(clocks) == 2
    assert len(cpu) == 17
    assert min(cpu) >= 0
    assert max(cpu) < 10
