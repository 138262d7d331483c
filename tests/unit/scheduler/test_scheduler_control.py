"""Control messages, numbers, observers, and the rules of the phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import (
    BatchScheduled,
    Launched,
    PendingResult,
    RequestTable,
    SchedulerView,
    StepRecord,
    Wake,
    WorkerLimits,
    WorkerResult,
)
from jackfield.ipc.messages import FlushCacheRequest, StateRequest, WarmUpRequest
from jackfield.managers.scheduler.invariants import InvariantViolation
from jackfield.observability.clock import ManualClock
from jackfield.testing.scheduler_fakes import FakeWorker
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness


def test_state_counts_requests_steps_and_slots() -> None:
    run = SchedulerHarness(max_running_requests=1, total_slots=64)
    assert run.scheduler.state().last_step_age_s is None
    run.submit([1, 2, 3], max_new_tokens=4)
    run.submit([4, 5], max_new_tokens=4)
    run.turn()
    run.clock.advance(2.5)
    run.inbox.send(StateRequest(control_id=8))
    run.scheduler.ingest()
    run.collect()
    (reply,) = run.replies
    assert (reply.control_id, reply.ok) == (8, True)
    assert reply.data == {
        "running": 1,
        "waiting": 1,
        "in_flight": 0,
        "steps": 1,
        "last_step_age_s": 2.5,
        "kv_total": 64,
        "kv_free": 61,
        "kv_evictable": 0,
        "kv_protected": 3,
        "kv_pending": 0,
        "kv_held": 0,
        "duplicate_rids": 0,
        "invariant_failures": 0,
        "retractions": 0,
        "new_token_ratio": 0.7,
    }
    run.turn()
    assert run.scheduler.state().held == 1  # the first answer token, not in the cache yet
    run.run()
    run.assert_at_rest()


def test_flush_only_when_nothing_is_open() -> None:
    run = SchedulerHarness()
    run.submit([1, 2, 3], rid="a", max_new_tokens=3)
    run.scheduler.ingest()
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.turn()
    run.inbox.send(FlushCacheRequest(control_id=2))
    run.run()
    assert run.scheduler.state().evictable == 5
    run.inbox.send(FlushCacheRequest(control_id=3))
    run.run()
    assert [(reply.control_id, reply.ok) for reply in run.replies] == [(1, False), (2, False), (3, True)]
    assert "0 requests run, 1 wait" in run.replies[0].message
    assert "1 requests run" in run.replies[1].message
    state = run.scheduler.state()
    assert (state.free, state.evictable) == (state.total, 0)
    run.submit([1, 2, 3], rid="b", max_new_tokens=1)
    run.run()
    assert run.answers["b"].last.cached_tokens == 0
    run.assert_at_rest()


def _with_surplus_steps(count: int) -> tuple[SchedulerHarness, list[Any]]:
    """Nobody is open any more, and so many steps of an aborted request are in flight; its prompt is cached."""
    run = SchedulerHarness()
    run.submit([1, 2, 3], rid="a", max_new_tokens=8)
    run.turn()
    steps = []
    for _ in range(count):
        steps.append(run.scheduler.launch(run.scheduler.next_batch()))  # type: ignore[arg-type]
        run.scheduler.sample(steps[-1])
    run.abort("a")
    run.scheduler.ingest()
    assert run.scheduler.state().evictable > 0
    return run, steps


def test_flush_waits_for_the_surplus_steps_of_requests_that_ended() -> None:
    run, steps = _with_surplus_steps(2)
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.scheduler.ingest()
    run.scheduler.commit(steps[0])
    run.collect()
    assert not run.replies  # one step is still in flight
    run.scheduler.commit(steps[1])
    run.collect()
    assert [(reply.control_id, reply.ok) for reply in run.replies] == [(1, True)]
    assert run.scheduler.state().free == run.scheduler.state().total
    run.assert_at_rest()


def test_a_flush_that_waits_is_refused_when_a_request_comes_first() -> None:
    run, steps = _with_surplus_steps(1)
    run.inbox.send(FlushCacheRequest(control_id=1))
    rid = run.submit([1, 2, 3, 4], max_new_tokens=2)
    run.scheduler.ingest()
    run.scheduler.commit(steps[0])
    run.collect()
    assert [(reply.control_id, reply.ok) for reply in run.replies] == [(1, False)]
    assert "1 wait" in run.replies[0].message
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 2)
    assert run.answers[rid].last.cached_tokens == 3
    run.assert_at_rest()


def test_the_end_of_a_warm_up_waits_as_a_flush_does() -> None:
    run, steps = _with_surplus_steps(1)
    run.inbox.send(WarmUpRequest(control_id=5, begin=False))
    run.scheduler.ingest()
    run.collect()
    assert not run.replies
    run.scheduler.commit(steps[0])
    run.collect()
    assert [(reply.control_id, reply.ok) for reply in run.replies] == [(5, True)]
    run.assert_at_rest()


def test_a_second_request_of_a_live_id_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    run = SchedulerHarness()
    run.submit([1, 2], rid="a", max_new_tokens=4)
    run.turn()
    run.inbox.send(_again("a"))
    run.run()
    assert run.answers["a"].ids == run.expected("a", 4)
    assert run.scheduler.state().duplicate_rids == 1
    assert "came twice" in caplog.text


def _again(rid: str) -> Any:
    from jackfield.ipc.messages import SamplingParams, TokenizedGenerateRequest

    return TokenizedGenerateRequest(rid=rid, input_ids=[9], sampling=SamplingParams())


def test_wait_says_why_it_returned() -> None:
    run = SchedulerHarness(max_running_requests=1)
    scheduler = run.scheduler
    assert scheduler.wait() is Wake.NOTHING
    rid = run.submit([1, 2], max_new_tokens=3)
    assert scheduler.wait() is Wake.MESSAGE
    assert scheduler.wait() is Wake.MESSAGE  # asking takes nothing away
    assert scheduler.ingest() == 1
    assert scheduler.wait() is Wake.DEADLINE
    step = scheduler.launch(scheduler.next_batch())  # type: ignore[arg-type]
    assert scheduler.wait() is Wake.RESULT
    scheduler.sample(step)
    scheduler.commit(step)
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 3)
    before = run.clock.now()
    assert scheduler.wait(until=before + 5) is Wake.DEADLINE
    assert run.clock.now() == before + 5


class Slow(FakeWorker):
    """Its results come `after` seconds on the virtual clock."""

    def __init__(self, clock: ManualClock, after: float) -> None:
        super().__init__(
            WorkerLimits(max_rows=9, max_context=128, total_slots=64, page_size=1, vocab_size=1000, max_tokens=4096)
        )
        self.clock, self.after = clock, after

    def sample(self, launched: Launched, masks: object = None) -> PendingResult:
        return SlowResult(super().sample(launched, masks), self.clock, self.clock.now() + self.after)


class SlowResult:
    def __init__(self, inner: PendingResult, clock: ManualClock, end: float) -> None:
        self.inner, self.clock, self.end, self.asked = inner, clock, end, 0

    def ready(self) -> bool:
        return self.clock.now() >= self.end

    def result(self, timeout: float | None = None) -> WorkerResult:
        if timeout is not None and self.clock.now() + timeout < self.end:
            self.clock.advance(timeout)
            raise TimeoutError
        self.clock.advance_to(self.end)
        self.asked += 1
        assert self.asked == 1, "a result is taken twice"
        return self.inner.result(None)


def test_wait_moves_a_virtual_clock_to_the_end_of_a_step() -> None:
    clock = ManualClock()
    run = SchedulerHarness(worker=Slow(clock, 4.0), clock=clock)
    rid = run.submit([1, 2], max_new_tokens=1)
    scheduler = run.scheduler
    scheduler.ingest()
    step = scheduler.launch(scheduler.next_batch())  # type: ignore[arg-type]
    scheduler.sample(step)
    assert not step.ready()
    assert scheduler.wait(until=1.5) is Wake.DEADLINE
    assert clock.now() == 1.5
    assert scheduler.wait() is Wake.RESULT
    assert clock.now() == 4.0
    assert step.ready()
    assert scheduler.wait() is Wake.RESULT
    scheduler.commit(step)
    run.collect()
    assert run.answers[rid].last.stage_times == {"queue": 0.0, "prefill": 4.0, "decode": 0.0}


class Watching(ArrivalOrder):
    def __init__(self) -> None:
        self.records: list[StepRecord] = []
        self.views: list[SchedulerView] = []

    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        self.views.append(view)

    def observe(self, record: StepRecord) -> None:
        self.records.append(record)


class Ears:
    def __init__(self, *hooks: str) -> None:
        self.hooks = hooks
        self.heard: list[tuple[str, Any]] = []

    def listens(self, hook_name: str) -> bool:
        return hook_name in self.hooks

    def notify(self, hook_name: str, **arguments: Any) -> None:
        assert self.listens(hook_name)
        (argument,) = arguments.values()
        self.heard.append((hook_name, argument))


def test_policy_and_observers_are_told_what_happened() -> None:
    policy = Watching()
    ears = Ears("jackfield_batch_scheduled", "jackfield_batch_committed")
    run = SchedulerHarness(policy=policy, observers=ears, max_running_requests=2)
    run.submit([1, 2, 3], max_new_tokens=2)
    run.submit([4], rid="gone", max_new_tokens=5)
    run.submit([5], rid="never", max_new_tokens=5)
    run.turn()
    run.abort("gone")
    run.abort("never")
    run.run()
    first, second = policy.records
    assert (first.step, first.started, first.ended) == (1, 0.0, 1.0)
    assert (first.uids.tolist(), first.tokens.tolist(), first.admitted) == ([1, 2], [3, 1], (1, 2))
    assert (first.finished, first.aborted) == ((), ())
    assert (second.uids.tolist(), second.tokens.tolist(), second.admitted) == ([1], [1], ())
    assert (second.finished, second.aborted) == ((1,), (2, 3))
    assert [record for hook, record in ears.heard if hook.endswith("committed")] == policy.records
    scheduled = [batch for hook, batch in ears.heard if hook.endswith("scheduled")]
    assert isinstance(scheduled[0], BatchScheduled)
    assert scheduled[0].new_tokens.tolist() == [3, 1]
    assert scheduled[0].computed.tolist() == [0, 0]
    assert (scheduled[0].waiting, scheduled[0].running) == (1, 2)
    assert scheduled[1].computed.tolist() == [3]
    view = policy.views[0]
    assert (view.step, view.free, view.evictable, view.total, view.page_size) == (1, 256, 0, 256, 1)
    assert (view.max_running, view.max_prefill) == (2, run.config.max_prefill_tokens)


def test_view_seeds_come_from_run_seed_and_step() -> None:
    def seeds(seed: int) -> list[int]:
        policy = Watching()
        run = SchedulerHarness(policy=policy, seed=seed, max_running_requests=1)
        for i in range(3):
            run.submit([i], max_new_tokens=1)
        run.run()
        return [view.seed for view in policy.views]

    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 6


@pytest.mark.parametrize("mode", ["off", "idle", "step"])
def test_a_failed_check_is_told_and_stops_only_where_asked(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """B57: a busy server outlives it, a test does not."""
    run = SchedulerHarness(check_invariants=mode)
    run.submit([1], max_new_tokens=1)
    run.turn()
    run.scheduler._memory.allocator.alloc(1)  # a slot that nobody accounts for
    if mode == "step":
        with pytest.raises(InvariantViolation, match="accounted for"):
            run.scheduler.idle()
        return
    run.scheduler.idle()
    run.scheduler.idle()  # asked once after each change, not in every idle turn
    assert run.scheduler.state().invariant_failures == (1 if mode == "idle" else 0)
    assert ("accounted for" in caplog.text) == (mode == "idle")


def test_phases_out_of_order_are_refused() -> None:
    run = SchedulerHarness()
    scheduler = run.scheduler
    run.submit([1], max_new_tokens=5)
    scheduler.ingest()
    first = scheduler.launch(scheduler.next_batch())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="before it was sampled"):
        scheduler.commit(first)
    scheduler.sample(first)
    with pytest.raises(RuntimeError, match="sampled twice"):
        scheduler.sample(first)
    second = scheduler.launch(scheduler.next_batch())  # type: ignore[arg-type]
    scheduler.sample(second)
    with pytest.raises(RuntimeError, match="committed before step 1"):
        scheduler.commit(second)
    scheduler.commit(first)
    with pytest.raises(RuntimeError, match="not launched here"):
        scheduler.commit(first)
    with pytest.raises(ValueError, match="lane 1"):
        scheduler.launch(scheduler.next_batch(), lane=1)  # type: ignore[arg-type]
    scheduler.commit(second)


def test_a_message_without_a_handler_is_an_error_in_one_place() -> None:
    with pytest.raises(TypeError, match="no handler"):
        SchedulerHarness().scheduler._control.handle(np.zeros(1), 0.0)
