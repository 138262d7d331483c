"""Gates: whom a new request has to pass before it may wait for a place. Knows no gate's reasons.

Requests that wait at a gate are in the waiting queue's `gated`, not in its table, so that no policy is offered them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jackfield.hookspecs import FaultScope, Gate, GateAnswer, GateEvent, GateRequest, RequestFault
from jackfield.ipc.messages import FinishReason
from jackfield.managers.scheduler.life_log import LifeLog
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.release import Ending
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.stack.errors import PLUGIN_ERRORS
from jackfield.stack.runtime.metering import Meter

OWN = "core."
"""Names of the core's own gates begin so: an error of theirs is no plugin's, and the replica cannot go on."""

GATE_ERROR = "The request could not be prepared."
"""What the client is told of a gate's own fault; its words go to the log."""


@dataclass(frozen=True, kw_only=True)
class OwnGateRequest(GateRequest):
    """What the core's own gates see of it: all."""

    request: Request


class BadGateAnswer(Exception):
    """A gate returned something that its contract does not allow."""


class Gates:
    """gates: ("gate.instance", gate) in the order in which a request passes them."""

    def __init__(
        self,
        gates: Sequence[tuple[str, Gate]],
        waiting: WaitingQueue,
        ledger: Ledger,
        lives: LifeLog,
        now: Callable[[], float],
        meter: Meter,
    ) -> None:
        self._gates = [
            (name, gate if name.startswith(OWN) else meter.watch(name, gate, expected=(RequestFault,)))
            for name, gate in gates
        ]
        self._waiting = waiting
        self._ledger = ledger
        self._lives = lives
        self._now = now
        self._at: dict[int, int] = {}  # uid -> number of the gate at which it waits
        waiting.on_withdraw = self._withdrawn

    def enter(self, request: Request) -> Ending | None:
        """Let a new request in: into the queue, or to its first closed gate. An ending if a gate refuses it or fails; the
        request stands among the gated then, to be released."""
        return self._pass(request, 0)

    def poll(self) -> tuple[int, list[Ending]]:
        """How many requests came into the queue, and who has to end."""
        opened, endings = 0, []
        for number in sorted(set(self._at.values())):
            for event in self._events(number):
                if self._at.get(event.uid) != number:
                    continue  # it was cancelled
                request = self._waiting.gated[event.uid]
                del self._at[event.uid]
                if event.error:
                    ending: Ending | None = _ending(request, event.error, event.status_code)
                else:
                    ending = self._pass(request, number + 1)
                    if request.uid not in self._waiting.gated:
                        opened += 1
                        self._lives.opened(request, self._now())
                if ending is not None:
                    endings.append(ending)
        return opened, endings

    def _pass(self, request: Request, first: int) -> Ending | None:
        seen = GateRequest(
            uid=request.uid, key=request.prompt_key, max_new_tokens=request.max_new_tokens, arrival=request.arrival
        )
        whole = OwnGateRequest(
            uid=seen.uid, key=seen.key, max_new_tokens=seen.max_new_tokens, arrival=seen.arrival, request=request
        )
        for number in range(first, len(self._gates)):
            name, gate = self._gates[number]
            try:
                answer = gate.enter(whole if name.startswith(OWN) else seen)
                if not isinstance(answer, GateAnswer):
                    raise BadGateAnswer(f"enter returned a {type(answer).__name__}, not a GateAnswer")
            except PLUGIN_ERRORS as error:
                if name.startswith(OWN) and not isinstance(error, RequestFault):
                    raise
                self._waiting.gate(request)
                return self._refused(request, name, error)
            if answer is GateAnswer.WAITING:
                self._at[request.uid] = number
                self._lives.gated(request, name, self._now())
                self._waiting.gate(request)
                return None
        self._waiting.open(request)
        return None

    def _refused(self, request: Request, name: str, error: BaseException) -> Ending:
        """The end of a request for which `enter` raised this."""
        if isinstance(error, RequestFault):
            try:
                return _ending(request, *_for_client(error.message, error.status_code))
            except Exception as unfit:
                error = unfit
        self._ledger.record(name, FaultScope.REQUEST, error)
        return _ending(request, GATE_ERROR, 500)

    def _events(self, number: int) -> list[GateEvent]:
        """What a gate tells; if it fails at that, all who wait there end, because nobody knows for whom it failed."""
        name, gate = self._gates[number]
        try:
            return [_checked(event) for event in gate.poll()]
        except PLUGIN_ERRORS as error:
            if name.startswith(OWN):
                raise
            self._ledger.record(name, FaultScope.REQUEST, error)
            return [GateEvent(uid=uid, error=GATE_ERROR) for uid, at in self._at.items() if at == number]

    def _withdrawn(self, uid: int) -> None:
        number = self._at.pop(uid, None)
        if number is None:
            return
        name, gate = self._gates[number]
        try:
            gate.cancel(uid)
        except PLUGIN_ERRORS as error:  # the request has ended anyway
            self._ledger.record(name, FaultScope.REQUEST, error)

    def close(self) -> None:
        for name, gate in self._gates:
            try:
                gate.close()
            except PLUGIN_ERRORS as error:
                self._ledger.record(name, FaultScope.COUNT, error)


def _checked(event: object) -> GateEvent:
    if not isinstance(event, GateEvent):
        raise BadGateAnswer(f"poll returned a {type(event).__name__}, not a GateEvent")
    uid = operator.index(event.uid)
    if not event.error:
        return GateEvent(uid=uid)
    message, status = _for_client(event.error, event.status_code)
    return GateEvent(uid=uid, error=message, status_code=status)


def _for_client(message: object, status: object) -> tuple[str, int]:
    """What other processes can read and HTTP can send; BadGateAnswer or TypeError for anything else."""
    if not isinstance(message, str):
        raise BadGateAnswer(f"the reason for the client is a {type(message).__name__}, not a str")
    code = operator.index(status)  # type: ignore[arg-type]
    if not 400 <= code <= 599:
        raise BadGateAnswer(f"the status of a request that cannot run is {code}; 400 to 599 are allowed")
    return message.encode("utf-8", "replace").decode(), code


def _ending(request: Request, message: str, status: int) -> Ending:
    finish = FinishReason(type="abort", message=message, status_code=status)
    return Ending(request=request, finish=finish, insert=False)
