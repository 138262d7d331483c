"""What each message to the scheduler does. One handler a message type; none of them can end the replica."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from jackfield.ipc.channels import Sender
from jackfield.ipc.dispatcher import Dispatcher
from jackfield.ipc.messages import (
    AbortRequest,
    ControlReply,
    FinishReason,
    FlushCacheRequest,
    RequestOpened,
    StateRequest,
    StopRequest,
    SwapPolicyRequest,
    TokenizedGenerateRequest,
    WarmUpRequest,
    WhyRequest,
)
from jackfield.managers.errors import RequestError
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.flush import PendingFlush
from jackfield.managers.scheduler.gates import Gates
from jackfield.managers.scheduler.intake import Intake, refusal
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.release import Ending, Releaser
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.state import SchedulerState

log = logging.getLogger(__name__)

ABORTED = FinishReason(type="abort", message="The request was aborted.")


class Control:
    """duplicate_rids: messages dropped because a request of that id was live. The main process makes the ids, so this is a
    defect there; an answer under the id would end the live request, hence none is sent.
    flush: the flush that waits, if one does."""

    def __init__(
        self,
        *,
        live: dict[str, Request],
        intake: Intake,
        waiting: WaitingQueue,
        gates: Gates,
        releaser: Releaser,
        outbox: Outbox,
        memory: KVMemory,
        to_main: Sender,
        state: Callable[[], SchedulerState],
        mute: Callable[[bool], None],
        decisions: DecisionLog,
        swap: Callable[[SwapPolicyRequest], None],
        max_running: int,
    ) -> None:
        self.duplicate_rids = 0
        self._max_running = max_running
        self._live = live
        self._intake = intake
        self._waiting = waiting
        self._gates = gates
        self._releaser = releaser
        self._outbox = outbox
        self._to_main = to_main
        self._state = state
        self._mute = mute
        self._decisions = decisions
        self._now = 0.0
        self.flush = PendingFlush(memory=memory, state=state, answer=self._flushed)
        self._dispatch = Dispatcher(
            {
                TokenizedGenerateRequest: self._generate,
                AbortRequest: self._abort,
                StopRequest: self._stop,
                FlushCacheRequest: self._flush_cache,
                StateRequest: self._tell_state,
                WhyRequest: self._tell_why,
                WarmUpRequest: self._warm_up,
                SwapPolicyRequest: swap,
            }
        )

    def handle(self, message: Any, now: float) -> None:
        self._now = now
        self._dispatch(message)

    def _generate(self, message: TokenizedGenerateRequest) -> None:
        if message.rid in self._live:
            self.duplicate_rids += 1
            log.error("request id %s came twice while live; the second message is dropped", message.rid)
            return
        try:
            request = self._intake.admit(message, queue_full=self._queue_full, now=self._now)
        except RequestError as error:
            opened = RequestOpened(rid=message.rid, sampling=message.sampling, stream=message.stream)
            self._outbox.refuse(opened, refusal(error), len(message.input_ids))
            self._decisions.lives.refused(message, refusal(error), self._now)
            return
        self._decisions.lives.arrived(request, message, len(self._waiting), len(self._live) - len(self._waiting))
        self._live[request.rid] = request
        self._outbox.open(request)
        if (ending := self._gates.enter(request)) is not None:
            self._releaser.release([ending], self._now)

    def _queue_full(self) -> bool:
        return self._waiting.full(self._max_running - (len(self._live) - len(self._waiting)))

    def _abort(self, message: AbortRequest) -> None:
        reason = message.reason if message.reason is not None else ABORTED
        if message.abort_all:
            requests = list(self._live.values())
        else:
            requests = [self._live[message.rid]] if message.rid in self._live else []
        self._releaser.release([Ending(request=request, finish=reason) for request in requests], self._now)

    def _stop(self, message: StopRequest) -> None:
        request = self._live.get(message.rid)
        if request is not None:  # else it finished by itself in the meantime
            self._releaser.release([Ending(request=request, finish=FinishReason(type="stop"))], self._now)

    def _flush_cache(self, message: FlushCacheRequest) -> None:
        self.flush.ask(message, self._now)

    def _warm_up(self, message: WarmUpRequest) -> None:
        if message.begin:
            self._mute(True)
            self._to_main.send(ControlReply(control_id=message.control_id, ok=True))
        else:
            self.flush.ask(message, self._now)

    def _flushed(self, message: FlushCacheRequest | WarmUpRequest, reason: str) -> None:
        if isinstance(message, WarmUpRequest):
            self._mute(False)
        self._to_main.send(ControlReply(control_id=message.control_id, ok=not reason, message=reason))

    def _tell_state(self, message: StateRequest) -> None:
        self._to_main.send(ControlReply(control_id=message.control_id, ok=True, data=self._state().as_data()))

    def _tell_why(self, message: WhyRequest) -> None:
        reply = ControlReply(control_id=message.control_id, ok=True, detail=self._decisions.why(message.name))
        self._to_main.send(reply)
