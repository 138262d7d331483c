"""The main process's end of every request: check it, hand it over, collect what comes back.

It never blocks and owns no thread: whoever drives it calls `step`. What may be sent is `RequestBuilder`'s to say, who is open
`LiveRequests`'; here they meet the channels.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from jackfield.hookspecs import StackChanged
from jackfield.ipc.channels import Receiver, Sender
from jackfield.ipc.dispatcher import Dispatcher
from jackfield.ipc.messages import (
    AbortRequest,
    BatchTextOutput,
    ControlReply,
    FinishReason,
    PluginReport,
    SchedulerReport,
    StackNews,
    StopRequest,
)
from jackfield.managers.fields.grammar import Grammars
from jackfield.managers.fields.sampling_params import Processors
from jackfield.managers.fields.worker_features import WorkerFeatures
from jackfield.managers.requests.builder import RequestBuilder
from jackfield.managers.requests.checked_request import CheckedRequest
from jackfield.managers.requests.control_calls import ControlCalls
from jackfield.managers.requests.events import RequestEvents
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.requests.live_requests import LiveRequests
from jackfield.managers.requests.metrics import RequestMetrics
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.sessions.sessions import Sessions
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.observability.clock import Clock
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.runtime.observers import ObserverHub

log = logging.getLogger(__name__)


class TokenizerManager:
    """`submit` returns the states that fill up as `step` is called; `rid_to_state` holds the live ones.

    on_news    called by `step` with the states that changed, once a message
    on_report  called by `step` with the scheduler's reports; on_plugins: with those of other processes; on_stack: when a
               plugin was swapped, before any result of the new stack
    control    control requests and their answers
    sessions   the open ones; any thread may use them
    lock       `step` holds it for each message; whoever uses the manager from another thread than that of `step` holds it
               round `dispatch`, `abort`, `control` and reading states. Reentrant: a finalizer that ends a request may run
               on a thread that is inside
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer | None,
        limits: ReplicaLimits,
        sampling_defaults: Mapping[str, Any],
        worker: WorkerFeatures | None = None,
        processors: Processors | None = None,
        grammars: Grammars | None = None,
        weight_version: str = "default",
        to_scheduler: Sender,
        inbox: Receiver,
        clock: Clock,
        observers: ObserverHub | None = None,
        metrics: RequestMetrics | None = None,
        on_news: Callable[[Sequence[ReqState]], None] | None = None,
        on_report: Callable[[SchedulerReport], None] | None = None,
        sessions: Sessions | None = None,
        stacks: StackEpochs | None = None,
    ) -> None:
        self.sessions = sessions if sessions is not None else Sessions(clock)
        self.control = ControlCalls(to_scheduler)
        self.on_news = on_news
        self.on_report = on_report
        self.on_plugins: Callable[[PluginReport], None] | None = None
        self.on_stack: Callable[[StackChanged], None] | None = None
        self._stacks = stacks
        self.lock = threading.RLock()
        self.tokenizer = tokenizer
        self.limits = limits
        self.grammars = grammars or Grammars()
        self._builder = RequestBuilder(
            tokenizer=tokenizer,
            limits=limits,
            sampling_defaults=sampling_defaults,
            worker=worker or WorkerFeatures(),
            processors=processors,
            sessions=self.sessions,
            clock=clock,
            grammars=grammars,
            weight_version=weight_version,
        )
        self._live = LiveRequests(self.sessions, clock)
        self._events = RequestEvents(observers, metrics)
        self._to_scheduler = to_scheduler
        self._inbox = inbox
        self._clock = clock
        self._dispatch = Dispatcher(
            {
                BatchTextOutput: self._on_text,
                ControlReply: self.control.take,
                SchedulerReport: self._on_report,
                PluginReport: self._on_plugins,
                StackNews: self._on_stack_news,
            }
        )

    @property
    def rid_to_state(self) -> Mapping[str, ReqState]:
        """The runtime's own id -> the state, for every request of which the scheduler may hold something."""
        return self._live.rid_to_state

    @property
    def busy_since(self) -> float | None:
        """When the first of the requests that are open now was handed over; None while none is. Any thread may read it
        without the lock."""
        return self._live.busy_since

    def submit(self, request: AnyRequest) -> list[ReqState]:
        """Check all of a call, then hand all of it over; nothing is sent if any part is refused.

        Raises RequestError naming the field.
        """
        return self.dispatch(self.prepare(request))

    def prepare(self, request: AnyRequest) -> list[CheckedRequest]:
        """Validate and tokenize. Changes no shared state, so any thread may do it beside `step`. Raises RequestError."""
        return self._builder.build(request)

    def dispatch(self, checked: Sequence[CheckedRequest]) -> list[ReqState]:
        """Hand prepared requests to the scheduler. Raises RequestError."""
        # Begun before observers hear of it: one that never returns stops every request, and health must tell.
        self._live.begin(checked)
        try:
            # Before anything is sent, because an observer's error may come through it, and nobody would own what was sent.
            self._events.received(checked)
        except BaseException:
            self._live.withdraw(checked)
            raise
        for one in checked:
            self._live.enter(one.state)
            self._to_scheduler.send(one.request)
        return [one.state for one in checked]

    def abort(self, state: ReqState, message: str | None = None) -> None:
        """Ask the scheduler to end it; the state stays until the scheduler has answered. message: told to the client."""
        if not state.closed and not state.abort_sent:
            state.abort_sent = True
            reason = None if message is None else FinishReason(type="abort", message=message)
            self._to_scheduler.send(AbortRequest(rid=state.rid, reason=reason))

    def abort_where(self, choose: Callable[[TokenizerManager], Sequence[ReqState]], message: str | None = None) -> int:
        """Abort those chosen that are open and not aborted yet; says how many. Any thread; does not wait for their end."""
        with self.lock:
            states = [state for state in choose(self) if state.finish is None and not state.abort_sent]
            for state in states:
                self.abort(state, message)
        return len(states)

    def labelled(self, label: str) -> list[ReqState]:
        """The live requests that a client knows under this id: one, all choices of one prompt, or none."""
        return self._live.labelled(label)

    def begin_warm_up(self) -> int:
        """Until the end, no observer and no metric hears of a request. Returns the number for `control.reply`."""
        self._events.muted = True
        return self.control.warm_up(begin=True)

    def end_warm_up(self) -> int:
        """The prefix cache is flushed as well; not ok while a request is open."""
        self._events.muted = False
        return self.control.warm_up(begin=False)

    def step(self) -> int:
        """Handle what waits. Returns how many messages there were."""
        handled = 0
        while (message := self._inbox.receive()) is not None:
            with self.lock:
                self._dispatch(message)
            handled += 1
        return handled

    def _on_text(self, message: BatchTextOutput) -> None:
        closed = []
        changed = []
        grown = []
        now = self._clock.now()
        for output in message.outputs:
            state = self.rid_to_state.get(output.rid)
            if state is None:
                log.warning("output for a request that is not known here: %s", output.rid)
                continue
            was_open = state.finish is None
            tokens_before = len(state.output_ids)
            state.take(output, now)
            if (tokens := len(state.output_ids) - tokens_before) > 0:
                grown.append((state, tokens))
            changed.append(state)
            if output.stop_scheduler:
                self._to_scheduler.send(StopRequest(rid=state.rid))
            if was_open and state.finish is not None:
                self._live.finish(state)
            if state.closed:
                if self._stacks is not None:
                    state.stack = (output.stack_epoch, self._stacks.hash_of(output.stack_epoch))
                self._live.close(state)
                closed.append(state)
        self._events.moved(grown, closed, now)
        if self.on_news is not None and changed:
            self.on_news(changed)

    def _on_plugins(self, message: PluginReport) -> None:
        if self.on_plugins is not None:
            self.on_plugins(message)

    def _on_stack_news(self, message: StackNews) -> None:
        selected = msgspec.convert(message.plugin, SelectedPlugin)
        if self._stacks is not None and self._stacks.change(message.change, selected) and self.on_stack is not None:
            self.on_stack(message.change)

    def _on_report(self, message: SchedulerReport) -> None:
        self.sessions.reap()
        if self.on_report is not None:
            self.on_report(message)
