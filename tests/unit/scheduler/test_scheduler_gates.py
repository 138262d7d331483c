"""Gates: a request that waits at one is counted but never chosen, and comes into the queue at the place of its arrival."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.hookspecs import Gate, GateAnswer, GateEvent, GateRequest, RequestFault
from jackfield.ipc.messages import FlushCacheRequest
from jackfield.managers.scheduler.gates import GATE_ERROR
from jackfield.testing.scheduler_harness import SchedulerHarness


class Turnstile(Gate):
    """Holds whom it is told to; opens when told."""

    def __init__(self, holds: Any = lambda request: True) -> None:
        self.holds = holds
        self.seen: list[GateRequest] = []
        self.cancelled: list[int] = []
        self.events: list[GateEvent] = []
        self.closed = 0

    def enter(self, request: GateRequest) -> GateAnswer:
        self.seen.append(request)
        return GateAnswer.WAITING if self.holds(request) else GateAnswer.OPEN

    def poll(self) -> list[GateEvent]:
        events, self.events = self.events, []
        return events

    def cancel(self, uid: int) -> None:
        self.cancelled.append(uid)

    def close(self) -> None:
        self.closed += 1


def odd(request: GateRequest) -> bool:
    return request.uid % 2 == 1


def harness(*gates: Gate, **config: Any) -> SchedulerHarness:
    return SchedulerHarness(gates=[(f"gate.g{i}", gate) for i, gate in enumerate(gates)], **config)


def test_a_gated_request_waits_and_others_pass() -> None:
    gate = Turnstile(odd)
    run = harness(gate)
    first, second = run.submit([1, 2, 3], max_new_tokens=2), run.submit([4, 5], max_new_tokens=2)
    for _ in range(4):
        run.turn()
    assert run.answers[second].ids == run.expected(second, 2)
    assert run.answers[first].ids == []
    assert run.scheduler.state().waiting == 1
    assert gate.seen[0].key.tokens.tolist() == [1, 2, 3]
    gate.events.append(GateEvent(uid=1))
    run.run()
    assert run.answers[first].ids == run.expected(first, 2)
    run.assert_at_rest()


def test_arrival_order_in_the_queue() -> None:
    gate = Turnstile(lambda request: request.uid == 2)
    run = harness(gate, max_running_requests=1)
    for i in range(4):
        run.submit([i + 1], max_new_tokens=30)
    run.turn()
    gate.events.append(GateEvent(uid=2))
    run.turn()
    assert run.scheduler._waiting.table["uid"].tolist() == [2, 3, 4]


def test_gates_are_passed_one_behind_the_other() -> None:
    first, second = Turnstile(), Turnstile()
    run = harness(first, second)
    rid = run.submit([1, 2], max_new_tokens=1)
    run.turn()
    assert (len(first.seen), len(second.seen)) == (1, 0)
    first.events.append(GateEvent(uid=1))
    run.turn()
    assert len(second.seen) == 1
    first.events.append(GateEvent(uid=1))  # not the one at which it waits
    run.turn()
    assert run.scheduler.state().waiting == 1
    second.events.append(GateEvent(uid=1))
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 1)


def test_an_abort_at_a_gate_cancels_there() -> None:
    gate = Turnstile()
    run = harness(gate)
    rid = run.submit([1, 2], max_new_tokens=1)
    run.turn()
    run.abort(rid)
    run.turn()
    assert run.answers[rid].finish is not None
    assert gate.cancelled == [1]
    gate.events.append(GateEvent(uid=1))
    run.turn()
    run.assert_at_rest()


def test_an_event_with_an_error_ends_that_request() -> None:
    gate = Turnstile()
    run = harness(gate)
    rid, other = run.submit([1, 2], max_new_tokens=1), run.submit([3], max_new_tokens=1)
    run.turn()
    gate.events += [GateEvent(uid=1, error="no such grammar", status_code=400), GateEvent(uid=2)]
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    assert (finish.type, finish.message, finish.status_code) == ("abort", "no such grammar", 400)
    assert gate.cancelled == []
    assert run.answers[other].ids == run.expected(other, 1)


def test_a_gate_may_refuse() -> None:
    def refuse(request: GateRequest) -> bool:
        raise RequestFault("the adapter is unknown", status_code=404)

    run = harness(Turnstile(refuse))
    rid = run.submit([1, 2], max_new_tokens=1)
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    assert (finish.message, finish.status_code) == ("the adapter is unknown", 404)
    run.assert_at_rest()


class Booked:
    def __init__(self) -> None:
        self.faults: list[tuple[str, str]] = []

    def record(self, plugin: str, scope: Any, error: BaseException) -> None:
        self.faults.append((plugin, scope.value))


@pytest.mark.parametrize("what", ["raises", "answers nonsense"])
def test_a_fault_on_entry_ends_that_request_alone(what: str) -> None:
    class Faulty(Turnstile):
        def enter(self, request: GateRequest) -> GateAnswer:
            if request.uid == 1:
                if what == "raises":
                    raise ValueError("broken")
                return None  # type: ignore[return-value]
            return GateAnswer.OPEN

    ledger = Booked()
    run = harness(Faulty(), ledger=ledger)
    rid, other = run.submit([1, 2], max_new_tokens=1), run.submit([3], max_new_tokens=1)
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    assert finish.status_code == 500
    assert "broken" not in (finish.message or "")
    assert ledger.faults == [("gate.g0", "request")]
    assert run.answers[other].ids == run.expected(other, 1)


def test_a_fault_of_poll_ends_who_waits_there() -> None:
    class Faulty(Turnstile):
        def poll(self) -> list[GateEvent]:
            raise ValueError("broken")

    ledger = Booked()
    patient = Turnstile(lambda request: request.uid == 2)
    run = harness(patient, Faulty(lambda request: request.uid == 1), ledger=ledger)
    rid, other = run.submit([1, 2], max_new_tokens=1), run.submit([3], max_new_tokens=1)
    run.turn()
    run.turn()
    finish = run.answers[rid].finish
    assert finish is not None
    assert finish.status_code == 500
    patient.events.append(GateEvent(uid=2))
    run.run()
    assert run.answers[other].ids == run.expected(other, 1)
    assert ("gate.g1", "request") in ledger.faults


def test_gated_requests_count_against_the_queue_and_keep_a_flush_away() -> None:
    gate = Turnstile()
    run = harness(gate, max_queued_requests=2)
    for _ in range(3):
        run.submit([1, 2], max_new_tokens=1)
    run.turn()
    finish = run.answers["r3"].finish
    assert finish is not None
    assert finish.status_code == 503
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.turn()
    assert not run.replies[0].ok
    assert "2 wait" in run.replies[0].message


def test_wait_says_gate() -> None:
    from jackfield.hookspecs import Wake

    run = harness(Turnstile())
    run.submit([1, 2], max_new_tokens=1)
    run.turn()
    assert run.scheduler.wait() is Wake.GATE


def test_close_reaches_the_gates() -> None:
    gate = Turnstile()
    run = harness(gate)
    run.scheduler.close()
    assert gate.closed == 1


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (ValueError("no"), 500),
        (None, 400),
        ("no", "x"),
        ("no", 400.5),
        ("no", 99),
        ("no", 200),
        ("no", 10**30),
        ("no", None),
    ],
)
@pytest.mark.parametrize("where", ["enter", "poll"])
def test_a_refusal_that_nobody_can_be_told_ends_its_request_alone(where: str, message: Any, status: Any) -> None:
    """What a gate says goes to other processes and into an HTTP answer."""

    class Odd(Turnstile):
        def enter(self, request: GateRequest) -> GateAnswer:
            if request.uid == 1 and where == "enter":
                raise RequestFault(message, status_code=status)
            return GateAnswer.WAITING if request.uid == 1 else GateAnswer.OPEN

    ledger = Booked()
    gate = Odd()
    if where == "poll" and message is not None:
        gate.events.append(GateEvent(uid=1, error=message, status_code=status))
    elif where == "poll":
        gate.events.append(GateEvent(uid=[1]))  # type: ignore[arg-type]
    run = harness(gate, ledger=ledger)
    rid, other = run.submit([1, 2], max_new_tokens=1), run.submit([3], max_new_tokens=1)
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    assert (finish.message, finish.status_code) == (GATE_ERROR, 500)
    assert ledger.faults == [("gate.g0", "request")]
    assert run.answers[other].ids == run.expected(other, 1)


def test_a_refusal_with_half_a_character_is_told_without_it() -> None:
    class Odd(Turnstile):
        def enter(self, request: GateRequest) -> GateAnswer:
            raise RequestFault("no \ud83d", status_code=422)

    run = harness(Odd())
    rid = run.submit([1, 2], max_new_tokens=1)
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    assert (finish.message, finish.status_code) == ("no ?", 422)
