"""Requests that wait or run longer than they may: 503 with the numbers, everything given back, and nobody else touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Gate,
    GateAnswer,
    GateEvent,
    GateRequest,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepOutcome,
    Wake,
)
from jackfield.ipc.messages import FinishReason, FlushCacheRequest
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_scheduler_loops.overlap import OverlapLoop


class Nobody(SchedulePolicy):
    """Lets nobody run."""

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        return np.empty(0, dtype=np.intp)


def finish_of(run: SchedulerHarness, rid: str) -> FinishReason:
    finish = run.answers[rid].finish
    assert finish is not None
    return finish


def test_who_waits_too_long_ends_with_503_and_the_numbers() -> None:
    run = SchedulerHarness(max_running_requests=1, request_waiting_timeout=5)
    run.submit([1], rid="runs", max_new_tokens=20)
    run.submit([2], rid="waits", max_new_tokens=2)
    run.turn()
    run.clock.advance(2.0)
    run.submit([3], rid="later", max_new_tokens=2)
    run.turn()
    while "waits" not in run.answers or run.answers["waits"].finish is None:
        run.turn()
    finish = finish_of(run, "waits")
    assert (finish.type, finish.status_code, finish.err_type) == ("abort", 503, "request_waiting_timeout")
    assert (
        finish.message
        == "The request waited 5.0 s without being started; the limit is 5 s (--request-waiting-timeout)."
    )
    assert run.answers["waits"].last.stage_times == {"queue": 5.0}
    assert run.answers.get("later") is None or run.answers["later"].finish is None
    run.run()
    assert run.answers["runs"].ids == run.expected("runs", 20)  # it waited for nothing, and may run as long as it likes
    assert finish_of(run, "later").err_type == "request_waiting_timeout"
    run.assert_at_rest()


def test_who_runs_too_long_keeps_what_there_is_and_gives_everything_back() -> None:
    run = SchedulerHarness(request_running_timeout=4.5)
    run.submit([1, 2, 3], rid="long", max_new_tokens=50)
    run.clock.advance(100.0)  # nobody looked at it yet: it arrives now
    run.turn()
    run.clock.advance(0.25)
    run.submit([4, 5], rid="short", max_new_tokens=3)
    run.run()
    finish = finish_of(run, "long")
    assert (finish.status_code, finish.err_type) == (503, "request_running_timeout")
    assert (
        finish.message
        == "The request ran 5.2 s without coming to its end; the limit is 4.5 s (--request-running-timeout)."
    )
    answered = run.answers["long"].ids
    assert 0 < len(answered) < 50
    assert answered == run.expected("long", len(answered))
    assert run.answers["short"].ids == run.expected("short", 3)
    run.assert_at_rest()


def test_a_prompt_between_two_chunks_times_out_as_well() -> None:
    run = SchedulerHarness(request_running_timeout=2, max_prefill_tokens=8)
    run.submit(list(range(60)), rid="chunks", max_new_tokens=1)
    run.run()
    assert finish_of(run, "chunks").err_type == "request_running_timeout"
    assert run.answers["chunks"].ids == []
    assert run.scheduler.state().evictable == 16  # the chunks that were computed stay in the cache
    run.assert_at_rest()


def test_a_step_in_flight_does_no_harm_to_who_times_out_under_it() -> None:
    run = SchedulerHarness(request_running_timeout=3)
    loop = OverlapLoop(run.scheduler)
    run.submit([1, 2], rid="a", max_new_tokens=50)
    while run.scheduler.state().running or not run.answers:
        assert loop.step() is StepOutcome.RAN
        run.clock.advance(1.0)
        run.collect()
    loop.settle()
    run.collect()
    assert finish_of(run, "a").err_type == "request_running_timeout"
    assert run.answers["a"].ids == run.expected("a", len(run.answers["a"].ids))
    run.assert_at_rest()


def test_a_request_that_no_policy_admits_times_out_without_a_message() -> None:
    """`wait` knows when: the virtual clock moves no further, and no turn is taken for nothing on a real one."""
    run = SchedulerHarness(policy=Nobody(), request_waiting_timeout=0.0125)
    run.submit([1], rid="never")
    while run.turn() is StepOutcome.IDLE and run.scheduler.state().waiting:
        assert run.scheduler.wait() is Wake.DEADLINE
    run.collect()
    assert finish_of(run, "never").status_code == 503
    assert run.clock.now() == 0.0125
    run.assert_at_rest()


def test_wait_ends_with_the_next_timeout() -> None:
    asked: list[float | None] = []
    run = SchedulerHarness(policy=Nobody(), request_waiting_timeout=0.0005)

    def doorbell(seconds: float | None) -> bool:
        asked.append(seconds)
        return False

    run.scheduler._waits._doorbell = doorbell
    run.submit([1], rid="never")
    run.turn()
    run.scheduler.wait()
    run.clock.advance(0.0005)
    run.turn()
    run.scheduler.wait()
    assert asked == [0.0005, None]
    assert finish_of(run, "never").status_code == 503


def test_nobody_is_looked_at_while_nobody_can_be_due(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SchedulerHarness(policy=Nobody(), request_waiting_timeout=100, request_running_timeout=100)
    for i in range(20):
        run.submit([i])
    run.turn()
    looked = 0
    table = type(run.scheduler._waiting.table)
    read = table.__getitem__

    def counting(self: Any, column: str) -> Any:
        nonlocal looked
        looked += column == "arrival"
        return read(self, column)

    monkeypatch.setattr(table, "__getitem__", counting)
    for _ in range(50):
        run.scheduler.poll()
    assert looked == 0
    run.clock.advance(100)
    assert run.scheduler.poll() == 20
    assert looked > 0


@settings(max_examples=60, deadline=None)
@given(
    waiting=st.none() | st.sampled_from([1, 3, 8]),
    running=st.none() | st.sampled_from([1, 4, 9]),
    arrivals=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=12),
)
def test_everybody_ends_when_the_slow_rule_says(
    waiting: int | None, running: int | None, arrivals: list[tuple[int, int, int]]
) -> None:
    """Each step takes a second, so that every time is a whole number of them."""
    run = SchedulerHarness(
        max_running_requests=2, max_prefill_tokens=4, request_waiting_timeout=waiting, request_running_timeout=running
    )
    arrived: set[str] = set()
    pending = sorted(arrivals)
    while pending or run.scheduler.state().waiting or run.scheduler.state().running:
        while pending and pending[0][0] <= run.clock.now():
            _, length, new = pending.pop(0)
            arrived.add(run.submit([len(arrived)] * length, max_new_tokens=new))
        if run.turn() is StepOutcome.IDLE:
            run.clock.advance(1.0)
        for answer in run.answers.values():
            if answer.finish is None:
                continue
            times = answer.last.stage_times
            total = sum(times.values())
            if answer.finish.err_type == "request_waiting_timeout":
                assert waiting is not None
                assert (times["queue"], total) == (waiting, waiting)
            elif answer.finish.err_type == "request_running_timeout":
                assert running is not None
                assert total - times["queue"] == running
            else:
                assert waiting is None or times["queue"] < waiting
                assert running is None or total - times["queue"] <= running
                assert len(answer.ids) == answer.finish.length
    assert set(run.answers) == arrived
    run.assert_at_rest()


# ---- flushes that wait


def replies(run: SchedulerHarness) -> list[tuple[int, bool]]:
    return [(reply.control_id, reply.ok) for reply in run.replies]


def test_b60_a_flush_with_a_timeout_waits_until_nothing_is_open() -> None:
    run = SchedulerHarness()
    run.submit([1, 2, 3], rid="a", max_new_tokens=4)
    run.turn()
    run.inbox.send(FlushCacheRequest(control_id=1, timeout=100))
    run.submit([1, 2, 3], rid="b", max_new_tokens=4)  # requests go on being taken, with what is cached
    run.inbox.send(FlushCacheRequest(control_id=2, timeout=100))
    run.inbox.send(FlushCacheRequest(control_id=3))
    run.turn()
    assert replies(run) == [(2, False), (3, False)]
    assert {reply.message for reply in run.replies} == {"Another flush_cache is already in progress."}
    run.run()
    assert replies(run)[2:] == [(1, True)]
    assert run.answers["b"].last.cached_tokens == 2
    state = run.scheduler.state()
    assert (state.free, state.evictable) == (state.total, 0)
    run.inbox.send(FlushCacheRequest(control_id=4))
    run.turn()
    assert replies(run)[3:] == [(4, True)]


def test_b60_a_flush_that_waited_in_vain_says_so() -> None:
    run = SchedulerHarness()
    run.submit([1, 2, 3], rid="a", max_new_tokens=20)
    run.turn()
    run.inbox.send(FlushCacheRequest(control_id=1, timeout=3.5))
    began = run.clock.now()
    while not run.replies:
        run.turn()
    assert 3.5 <= run.clock.now() - began <= 4.5
    assert replies(run) == [(1, False)]
    assert "1 requests run" in run.replies[0].message
    assert "3.5 s" in run.replies[0].message
    run.run()
    assert run.scheduler.state().evictable > 0  # nothing was flushed later on
    assert run.answers["a"].ids == run.expected("a", 20)


def test_b60_an_abort_lets_a_flush_go_on_in_the_same_turn() -> None:
    run = SchedulerHarness(policy=Nobody())
    run.submit([1, 2, 3], rid="a")
    run.inbox.send(FlushCacheRequest(control_id=1, timeout=1000))
    run.turn()
    assert not run.replies
    run.abort("a")
    run.turn()
    assert replies(run) == [(1, True)]


def test_a_flush_that_waits_bounds_the_wait() -> None:
    run = SchedulerHarness(policy=Nobody())
    run.submit([1, 2, 3], rid="a")
    run.inbox.send(FlushCacheRequest(control_id=1, timeout=0.0125))
    while not run.replies:
        run.turn()
        run.scheduler.wait()
    assert run.clock.now() <= 0.014
    assert replies(run) == [(1, False)]


@pytest.mark.parametrize("name", ["request_waiting_timeout", "request_running_timeout"])
@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        SchedulerHarness(**{name: value})  # type: ignore[arg-type]


class Closed(Gate):
    def __init__(self) -> None:
        self.cancelled: list[int] = []

    def enter(self, request: GateRequest) -> GateAnswer:
        return GateAnswer.WAITING

    def poll(self) -> list[GateEvent]:
        return []

    def cancel(self, uid: int) -> None:
        self.cancelled.append(uid)


def test_who_waits_at_a_gate_times_out_as_well() -> None:
    gate = Closed()
    run = SchedulerHarness(gates=[("gate.closed", gate)], request_waiting_timeout=0.0125)
    run.submit([1], rid="gated")
    while run.turn() is StepOutcome.IDLE and run.scheduler.state().waiting:
        assert run.scheduler.wait() is Wake.GATE
    run.collect()
    assert finish_of(run, "gated").err_type == "request_waiting_timeout"
    assert run.clock.now() == 0.0125
    assert gate.cancelled == [1]
    run.assert_at_rest()


def test_a_retraction_resets_neither_clock() -> None:
    """Running goes on through it, and who ran once can no longer wait too long."""
    run = SchedulerHarness(
        total_slots=24, schedule_conservativeness=0.01, request_waiting_timeout=5, request_running_timeout=14
    )
    run.submit([1] * 6, rid="first", max_new_tokens=10)
    run.submit([2] * 6, rid="second", max_new_tokens=18)
    run.run()
    assert run.scheduler.state().retractions > 0
    assert run.answers["first"].ids == run.expected("first", 10)
    finish, times = finish_of(run, "second"), run.answers["second"].last.stage_times
    assert (
        finish.message
        == "The request ran 14.0 s without coming to its end; the limit is 14 s (--request-running-timeout)."
    )
    assert times["queue"] > 0
    assert run.answers["second"].last.retractions > 0
    run.assert_at_rest()
