"""The conformance suite of kind `gate`: its answers, that nothing in it blocks, and requests that wait at it in a whole
scheduler. What opens a gate only its author knows: override `let_in`. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jackfield.hookspecs import CacheKey, Gate, GateAnswer, GateEvent, GateRequest, RequestFault
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.conformance.guards import bytecodes, forbidden_acts
from jackfield.testing.conformance.suite import Conformance
from jackfield.testing.scheduler_harness import SchedulerHarness

CROWD = 256
MOST_BYTECODES = 200
"""Of a `poll`, for each request that waits: it is asked some thousand times a second."""


class GateConformance(Conformance):
    kind = "gate"

    def let_in(self, gate: Gate) -> None:
        """Make happen what the gate waits for, so that its next `poll` lets everybody in. Yours to override."""

    @pytest.fixture
    def gate(self) -> Iterator[Gate]:
        made: Gate = self.make(vocab_size=1000)
        yield made
        made.close()

    def waits(self, gate: Gate, *uids: int) -> list[int]:
        """Those of the requests that wait; the others passed or were refused."""
        return [uid for uid in uids if self.entered(gate, uid) is GateAnswer.WAITING]

    def entered(self, gate: Gate, uid: int) -> GateAnswer | None:
        """None: it was refused, as a client can be told."""
        try:
            answer = gate.enter(request(uid))
        except RequestFault as refusal:
            fault = refusal
        else:
            assert isinstance(answer, GateAnswer), f"enter answered {answer!r}, which is no GateAnswer"
            return answer
        assert 400 <= fault.status_code <= 599, f"a refusal with the status code {fault.status_code}"
        assert fault.message, "a refusal without a word for the client"
        return None

    def test_enter_answers_at_once(self, gate: Gate) -> None:
        """`enter` lets a request in, has it wait, or refuses it with words and an HTTP status for the client."""
        for uid in range(1, 20):
            self.entered(gate, uid)

    def test_poll_tells_of_those_who_wait_and_once(self, gate: Gate) -> None:
        """Each wait ends with at most one event, for a request that waits, with a status code where it is an error."""
        waiting = self.waits(gate, *range(1, 9))
        self.let_in(gate)
        told: list[GateEvent] = []
        for _ in range(20):
            told += list(gate.poll())
        assert all(isinstance(event, GateEvent) for event in told)
        uids = [event.uid for event in told]
        assert len(uids) == len(set(uids)), f"a wait ended twice: {uids}"
        assert set(uids) <= set(waiting), f"an event for a request that does not wait: {set(uids) - set(waiting)}"
        assert all(not event.error or 400 <= event.status_code <= 599 for event in told)

    def test_poll_of_an_empty_gate(self, gate: Gate) -> None:
        """With nobody waiting there is nothing to tell."""
        assert list(gate.poll()) == []

    def test_cancel_of_who_waits(self, gate: Gate) -> None:
        """A request that ends while it waits is forgotten: the others' waits end as they would have."""
        waiting = self.waits(gate, 1, 2, 3)
        if not waiting:
            self.not_here("nobody waits at it now")
        gate.cancel(waiting[0])
        self.let_in(gate)
        uids = {event.uid for _ in range(20) for event in gate.poll()}
        if type(self).let_in is not GateConformance.let_in:
            assert uids - {waiting[0]} == set(waiting[1:]), f"{waiting[0]} was cancelled; let in were {uids}"

    def test_nothing_blocks(self, gate: Gate) -> None:
        """`enter`, `poll` and `cancel` neither wait nor do I/O: the scheduler's thread calls them between two steps."""

        def everything() -> None:
            waiting = self.waits(gate, 101, 102)
            gate.poll()
            for uid in waiting:
                gate.cancel(uid)

        everything()  # what is imported at the first call is not I/O of the gate
        acts = [act for act in forbidden_acts(everything) if act.startswith(("it waits", "it does I/O", "it starts"))]
        assert not acts, "; ".join(acts)

    def test_poll_is_cheap_in_a_crowd(self, gate: Gate) -> None:
        """With 256 requests waiting a `poll` runs a bounded number of bytecodes for each."""
        waiting = self.waits(gate, *range(1, CROWD + 1))
        gate.poll()
        count = bytecodes(gate.poll)
        self.measured(f"bytecodes of a poll with {len(waiting)} waiting", count)
        assert count <= 500 + MOST_BYTECODES * CROWD, f"{count} bytecodes in one poll"

    def test_close_twice(self) -> None:
        """`close` may come twice, and before any request."""
        gate: Gate = self.make(vocab_size=1000)
        gate.close()
        gate.close()

    def test_in_a_whole_scheduler(self, gate: Gate) -> None:
        """Requests pass, are refused or wait; an abort ends a wait; once they are let in all end, and every slot comes back."""
        ledger = FaultLedger("raise")
        run = SchedulerHarness(gates=[("gate.mine", gate)], ledger=ledger)
        rids = [run.submit([n, n + 1, n + 2], max_new_tokens=3) for n in range(6)]
        run.turn()
        run.abort(rids[1])
        run.turn()
        self.let_in(gate)
        for _ in range(200):
            run.turn()
            if all(rid in run.answers and run.answers[rid].finish is not None for rid in rids):
                break
        else:
            for rid in rids:
                run.abort(rid)
            run.run()
            run.assert_at_rest()
            if type(self).let_in is GateConformance.let_in:
                self.not_here("nobody is let in; override let_in(gate) in a subclass to test that too")
            raise AssertionError("let_in was called, and requests still wait")
        for rid in rids:
            answer = run.answers[rid]
            # One that was let in by itself before its abort has some.
            assert rid == rids[1] or len(answer.ids) in (0, 3), f"{rid} has {len(answer.ids)} of 3 tokens"
            assert answer.ids == run.expected(rid, len(answer.ids)), f"{rid} has other tokens than it would have alone"
        run.assert_at_rest()


def request(uid: int) -> GateRequest:
    """A request of 20 tokens."""
    key = CacheKey(namespace=b"", tokens=np.arange(uid, uid + 20, dtype=np.int32))
    return GateRequest(uid=uid, key=key, max_new_tokens=16, arrival=float(uid))
