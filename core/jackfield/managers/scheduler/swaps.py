"""Swapping the schedule policy while the replica runs: one swap after the other, each between two steps, nothing drained.

Requests stay where they are, and with them all that bounds their wait: skip counts, retractions and leases are the core's. The
new policy is found and made aside and sees what is there then. Knows no plugin and no catalogue: `PolicySource` does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import SchedulerView, StackChanged
from jackfield.ipc.channels import Sender
from jackfield.ipc.messages import ControlReply, StackNews, SwapPolicyRequest
from jackfield.managers.scheduler.aside import aside
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.hints import PrefixHints
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.watchers import Observers
from jackfield.stack.errors import PLUGIN_ERRORS
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.runtime.faults import named
from jackfield.stack.selection.swap import NewPolicy

log = logging.getLogger(__name__)

BY_HAND = "this scheduler was handed its policy and knows no plugins to choose another from"

MAKING_SECONDS = 60.0
"""How long a policy may take to be found, imported and made: one that never ends must hold up no other swap."""


class PolicySource(Protocol):
    """Finds and makes policies by the rules of the start. One call at a time, perhaps not on the scheduler's thread."""

    @property
    def running(self) -> SelectedPlugin: ...

    @property
    def stack_hash(self) -> str: ...

    def prepare(self, name: str, options: Mapping[str, Any]) -> NewPolicy | None:
        """None: it is the one that runs, with the same options. Raises ConfigurationError."""
        ...

    def adopt(self, new: NewPolicy) -> None:
        """It is in place."""
        ...


class PolicySwaps:
    """epoch   how many swaps there were
    source  None: every swap is refused
    ring    makes a scheduler that waits look here again; None: it never blocks, and policies are made on its own thread
    """

    def __init__(
        self,
        source: PolicySource | None,
        *,
        guard: PolicyGuard,
        hints: PrefixHints,
        waiting: WaitingQueue,
        running: RunningTable,
        decisions: DecisionLog,
        outbox: Outbox,
        observers: Observers,
        to_detokenizer: Sender,
        to_main: Sender,
        view: Callable[[], SchedulerView],
        ring: Callable[[], None] | None,
    ) -> None:
        self.epoch = 0
        self._source = source
        self._guard = guard
        self._hints = hints
        self._waiting = waiting
        self._running = running
        self._decisions = decisions
        self._outbox = outbox
        self._observers = observers
        self._to_detokenizer = to_detokenizer
        self._to_main = to_main
        self._view = view
        self._ring = ring
        self._asked: deque[SwapPolicyRequest] = deque()
        self._making: Future[NewPolicy | None] | None = None

    def ask(self, message: SwapPolicyRequest) -> None:
        self._asked.append(message)

    def poll(self) -> int:
        """Between two steps. Returns how many swaps were answered, in the order in which they were asked for."""
        answered = 0
        while self._asked:
            if self._making is None:
                self._making = self._make(self._asked[0])
            if not self._making.done():
                break
            made, self._making = self._making, None
            self._to_main.send(self._answer(self._asked.popleft(), made))
            answered += 1
        return answered

    def _make(self, message: SwapPolicyRequest) -> Future[NewPolicy | None]:
        if self._ring is None:
            made: Future[NewPolicy | None] = Future()
            try:
                made.set_result(self._prepare(message))
            except PLUGIN_ERRORS as error:
                made.set_exception(error)
            return made
        # Reading manifests and importing a module takes longer than a step, and nobody should wait for that.
        ring = self._ring
        made = aside(lambda: self._prepare(message), "jackfield-swap", limit=MAKING_SECONDS)
        made.add_done_callback(lambda _: ring())
        return made

    def _prepare(self, message: SwapPolicyRequest) -> NewPolicy | None:
        if self._source is None:
            raise ConfigurationError(BY_HAND)
        return self._source.prepare(message.name, message.options)

    def _answer(self, message: SwapPolicyRequest, made: Future[NewPolicy | None]) -> ControlReply:
        error = made.exception()  # whatever its type: it was raised aside, where no interrupt of the user's comes
        if isinstance(error, ConfigurationError):
            return self._refused(message, str(error))
        if error is not None:
            log.warning("%r could not be made", message.name, exc_info=error)
            return self._refused(message, f"the schedule policy {message.name!r} could not be made: {named(error)}")
        new = made.result()
        if new is not None:
            try:
                self._put_in_place(new)
            except ConfigurationError as failed:
                return self._refused(message, str(failed))
        return ControlReply(
            control_id=message.control_id, ok=True, detail={"changed": new is not None, "epoch": self.epoch}
        )

    def _refused(self, message: SwapPolicyRequest, text: str) -> ControlReply:
        log.warning("the schedule policy stays: %s", text)
        return ControlReply(control_id=message.control_id, ok=False, message=text)

    def _put_in_place(self, new: NewPolicy) -> None:
        """Raises ConfigurationError if it cannot start with what is there; then nothing has changed. Whatever else goes wrong is
        the cache's or an observer's, and ends the replica as it would in a step."""
        assert self._source is not None
        view, kept = self._view(), self._hints.saved()
        self._hints.need(frozenset(new.selected.manifest.needs))
        self._hints.renew()
        try:
            self._guard.metered(new.policy, new.selected.key).start(self._waiting.table.view, self._running.view, view)
        except PLUGIN_ERRORS as error:
            self._hints.restore(kept)
            log.warning("%s raised in start", new.selected.described, exc_info=error)
            raise ConfigurationError(
                f"{new.selected.described} could not start with what runs and waits here: {named(error)}"
            ) from error
        before, selected = self._source.running, new.selected
        self._guard.take_over(new.policy, selected.key)
        self.epoch += 1
        change = StackChanged(
            epoch=self.epoch,
            stack_hash=new.stack_hash,
            previous_hash=self._source.stack_hash,
            at=view.now,
            step=view.step - 1,
            kind=selected.kind,
            name=selected.name,
            instance=selected.instance,
            distribution=selected.distribution,
            version=selected.version,
            previous=before.instance,
        )
        self._source.adopt(new)
        self._decisions.swapped(change)
        self._outbox.flush()
        self._outbox.epoch = self.epoch
        # To the detokenizer as well, which passes it on: so the main process knows an epoch before any result of it.
        news = StackNews(change=change, plugin=msgspec.to_builtins(selected))
        self._to_detokenizer.send(news)
        self._to_main.send(news)
        log.info(
            "stack epoch %d: %s in place of %s, with %d requests running and %d waiting; stack %s",
            self.epoch,
            selected.described,
            before.described,
            len(self._running),
            len(self._waiting),
            new.stack_hash,
        )
        if self._observers.listens("jackfield_stack_changed"):
            self._observers.notify("jackfield_stack_changed", stack=change)
