"""The scheduler: composes the parts and offers the phases that an event loop drives. It decides nothing itself beyond
which part is asked when; it knows no plugin's package and no device."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from jackfield.hookspecs import (
    FaultScope,
    Gate,
    InFlight,
    ModelWorker,
    PrefixCache,
    SchedulePolicy,
    SchedulerView,
    StepDecision,
    Wake,
    Want,
)
from jackfield.ipc.channels import Receiver, Sender
from jackfield.managers.scheduler.admission import Admission
from jackfield.managers.scheduler.batch import RowDeltas, ScheduleBatch, StepInFlight, book_launch, to_worker_batch
from jackfield.managers.scheduler.config import SchedulerConfig, check_limits
from jackfield.managers.scheduler.control import Control
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.gates import Gates
from jackfield.managers.scheduler.hints import PrefixHints
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.intake import Intake
from jackfield.managers.scheduler.invariants import InvariantChecker, InvariantViolation
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.planner import Planner
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.preemption import Preemption
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.randomness import step_seed
from jackfield.managers.scheduler.release import Releaser
from jackfield.managers.scheduler.reporting import PluginNumbers, Reporter
from jackfield.managers.scheduler.reports import StepReports
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.results import ResultApplier
from jackfield.managers.scheduler.retraction import Retraction
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.state import SchedulerState
from jackfield.managers.scheduler.tiers.store import GATE_NAME, KVTiers, TierSetup
from jackfield.managers.scheduler.timeouts import Timeouts
from jackfield.managers.scheduler.watchers import Ledger, LoggingLedger, NoObservers, Observers
from jackfield.observability.clock import Clock

log = logging.getLogger(__name__)

DECLINED_PAUSE = 0.001
"""Seconds until a policy that let nobody run is asked again, unless a message comes first."""
COPY_PAUSE = 0.01
"""Seconds between two looks at copies to tiers while there is nothing else to do."""


class Scheduler:
    """Implements `hookspecs.SchedulerPhases`. Used by one thread.

    Raises ValueError at once when the limits of configuration and worker contradict each other. An exception out of a
    phase (a worker's, a cache's, a broken invariant) means that the replica cannot go on.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        worker: ModelWorker,
        cache: PrefixCache,
        policy: SchedulePolicy,
        clock: Clock,
        inbox: Receiver,
        to_detokenizer: Sender,
        to_main: Sender,
        observers: Observers | None = None,
        ledger: Ledger | None = None,
        doorbell: Callable[[float | None], bool] | None = None,
        plugins: PluginNumbers | None = None,
        gates: Sequence[tuple[str, Gate]] = (),
        tiers: TierSetup | None = None,
    ) -> None:
        """doorbell: blocks until a message waits (True), or so many seconds, or until it is rung (False); None: inline.
        plugins: set where the main process cannot see this process's ledger and observers by itself.
        gates: ("gate.instance", gate) in the order in which new requests pass them."""
        limits = worker.limits
        check_limits(config, limits)
        self.config = config
        self._limits = limits
        self._worker = worker
        self._clock = clock
        self._inbox = inbox
        self._doorbell = doorbell
        self._ledger = ledger = ledger if ledger is not None else LoggingLedger()
        live: dict[str, Request] = {}
        self._waiting = WaitingQueue(config.max_queued_requests, config.max_skips)
        observers = observers if observers is not None else NoObservers()
        self._decisions = DecisionLog(
            steps=config.decision_steps,
            ended=config.ended_lives,
            rich=observers.listens("jackfield_step_decided"),
            lives_wanted=observers.listens("jackfield_requests_explained"),
        )
        self._running = RunningTable(limits.max_rows, limits.max_tokens_per_row)
        self._memory = KVMemory(limits, cache, ledger, config.cache_plugin)
        self._tiers: KVTiers | None = None
        if tiers is not None:
            self._tiers = self._memory.tiers = KVTiers(tiers, self._memory, ledger, self._promised)
            gates = [*gates, (GATE_NAME, self._tiers.gate)]  # the last one: what it loads should not wait for others
        self._gates = Gates(gates, self._waiting, ledger, self._decisions.lives, clock.now)
        self._policy = PolicyGuard(policy, ledger, config.policy_plugin, self._decisions)
        self._ratio = NewTokenRatio(config.schedule_conservativeness)
        self._deltas = RowDeltas()
        self._outbox = Outbox(to_detokenizer)
        hold_back = HoldBack(config.hold_back_tokens, limits.page_size)
        self._releaser = Releaser(
            live=live,
            waiting=self._waiting,
            running=self._running,
            memory=self._memory,
            deltas=self._deltas,
            hold_back=hold_back,
            outbox=self._outbox,
            lives=self._decisions.lives,
        )
        admission = Admission(
            max_running=config.max_running_requests,
            chunk=config.chunk,
            hints=PrefixHints(config.policy_needs, self._waiting, self._memory),
            waiting=self._waiting,
            running=self._running,
            memory=self._memory,
            policy=self._policy,
            hold_back=hold_back,
            deltas=self._deltas,
            ratio=self._ratio,
            decisions=self._decisions,
        )
        self._retraction = Retraction(
            waiting=self._waiting,
            running=self._running,
            memory=self._memory,
            policy=self._policy,
            releaser=self._releaser,
            ratio=self._ratio,
            decisions=self._decisions,
        )
        preemption = Preemption(
            max_skips=config.max_skips,
            waiting=self._waiting.table.view,
            running=self._running,
            memory=self._memory,
            policy=self._policy,
            ratio=self._ratio,
        )
        self._planner = Planner(
            max_prefill=config.max_prefill_tokens,
            max_tokens=limits.max_tokens,
            per_row=limits.max_tokens_per_row,
            chunk=config.chunk,
            max_prefills=config.max_consecutive_prefills,
            running=self._running,
            memory=self._memory,
            policy=self._policy,
            admission=admission,
            retraction=self._retraction,
            preemption=preemption,
            ratio=self._ratio,
            decisions=self._decisions,
        )
        self._results = ResultApplier(
            config,
            running=self._running,
            memory=self._memory,
            hold_back=hold_back,
            releaser=self._releaser,
            outbox=self._outbox,
            ledger=ledger,
        )
        self._reports = StepReports(
            policy=self._policy,
            observers=observers,
            take_lives=self._decisions.lives.take,
            memory=self._memory,
            tables=(self._waiting.table, self._running),
        )
        self._timeouts = Timeouts(
            config.request_waiting_timeout,
            config.request_running_timeout,
            queue=self._waiting,
            table=self._running,
            releaser=self._releaser,
        )
        self._worker_seconds = 0.0
        self._reporter = Reporter(
            to_main=to_main,
            state=self.state,
            evicted=lambda: self._memory.evicted,
            worker_seconds=lambda: self._worker_seconds,
            interval=config.report_interval,
            collect=config.collect_metrics,
            plugins=plugins,
        )
        self._control = Control(
            live=live,
            intake=Intake(config, total_slots=limits.total_slots, page_size=limits.page_size),
            waiting=self._waiting,
            gates=self._gates,
            releaser=self._releaser,
            outbox=self._outbox,
            memory=self._memory,
            to_main=to_main,
            state=self.state,
            mute=self._mute,
            decisions=self._decisions,
        )
        self._invariants = InvariantChecker(
            live=live, waiting=self._waiting, running=self._running, memory=self._memory, ratio=self._ratio
        )
        self._in_flight: deque[StepInFlight] = deque()
        self._stash: deque[Any] = deque()
        self._decided = 0
        self._committed = 0
        self._last_commit: float | None = None
        self._unchecked = True
        self._invariant_failures = 0
        self._policy.start(self._waiting.table.view, self._running.view, self._view())

    # ---- phases

    def ingest(self) -> int:
        count = 0
        now = self._clock.now()
        while (message := self._stash.popleft() if self._stash else self._inbox.receive()) is not None:
            self._control.handle(message, now)
            count += 1
        self._outbox.flush()
        if count:
            self._unchecked = True
        return count

    def poll(self) -> int:
        now = self._clock.now()
        ended = self._timeouts.expire(now)
        count = int(self._memory.poll()) + ended
        if self._tiers is not None and (loads := self._tiers.poll()):
            count += loads
            self._unchecked = True
        if self._waiting.gated:
            opened, endings = self._gates.poll()
            self._releaser.release(endings, now)
            ended += len(endings)
            self._memory.changes += opened > 0  # what policies are told of waiting requests is looked up again
            count += opened + len(endings)
        if ended:
            self._outbox.flush()
            self._unchecked = True
        return count + self._control.flush.poll(now)

    def next_batch(self, want: Want = Want.ANY) -> ScheduleBatch | None:
        if not len(self._running) and not len(self._waiting):
            return None
        view = self._view()
        batch = self._planner.plan(view, want, self._decided + 1, quiet=not self._in_flight)
        if batch is not None:
            self._decided += 1
        self._decisions.decided(batch, view, self._running, len(self._waiting), self._clock.now())
        return batch

    def launch(self, batch: ScheduleBatch, lane: int = 0) -> StepInFlight:
        if lane:
            raise ValueError(f"lane {lane}: this scheduler has one lane, 0")
        running = self._running
        at, alive = running.locate(batch.rows, batch.uids)
        if not alive.all():  # somebody was aborted since the decision
            batch, at = batch.only(alive), at[alive]
        now = self._clock.now()
        computed = running["computed"][at]
        self._reports.scheduled(batch, computed, at=now, waiting=len(self._waiting), running=len(running))
        self._reporter.launched(now)
        launched, sample = None, np.empty(0, dtype=np.bool_)
        if len(at):
            plain = to_worker_batch(batch, running, at, self._deltas, self._memory.rows)
            with self._worker_call():
                launched, sample = self._worker.launch(plain), plain.sample
            book_launch(running, at, plain)
        step = StepInFlight(
            batch=batch,
            started=now,
            launched=launched,
            start=computed,
            sample=sample,
            requests=running["request"][at],
            deferred=self._limits.deferred,
        )
        self._in_flight.append(step)
        self._decisions.launched(batch.step, self._clock.now() - now)
        return step

    def sample(self, step: InFlight) -> None:
        mine = self._own(step)
        if mine.launched is None:
            return
        if mine.pending is not None:
            raise RuntimeError(f"step {mine.batch.step} is sampled twice")
        with self._worker_call():
            mine.pending = self._worker.sample(mine.launched, None)

    def commit(self, step: InFlight) -> None:
        mine = self._own(step)
        if mine is not self._in_flight[0]:
            raise RuntimeError(f"step {mine.batch.step} is committed before step {self._in_flight[0].batch.step}")
        began = self._clock.now()
        if mine.launched is not None:
            if mine.pending is None:
                raise RuntimeError(f"step {mine.batch.step} is committed before it was sampled")
            with self._worker_call():
                result = mine.fetch(None)
            began = self._clock.now()
            self._decisions.committing(mine.batch.step)
            self._results.apply(mine, result, began)
        self._in_flight.popleft()
        self._outbox.flush()
        self._committed += 1
        self._last_commit = self._clock.now()
        self._unchecked = True
        self._reports.decided(self._decisions.committed(mine, began, self._last_commit))
        self._reports.committed(mine, self._releaser.take_ended(), self._last_commit)
        open_requests = len(self._running) + len(self._waiting)
        if not open_requests:
            self._ratio.reset()
        self._reporter.committed(mine, self._last_commit, open_requests)
        self._control.flush.poll(self._last_commit)
        if self.config.check_invariants == "step":
            self._invariants.check()

    def wait(self, until: float | None = None) -> Wake:
        """Waits for the oldest step in flight, else for a message, and no longer than until the next timeout. Without a
        doorbell (inline) there is nothing to block on: it returns at once, and a virtual clock moves to the step's end, to
        `until`, or by a small pause. DEADLINE also when requests wait or run and nothing is in flight: the caller should take
        another turn."""
        due = [time for time in (until, self._timeouts.next(), self._control.flush.next()) if time is not None]
        until = min(due, default=None)
        if not self._stash and (message := self._inbox.receive()) is not None:
            self._stash.append(message)
        if self._stash:
            return Wake.MESSAGE
        if self._in_flight:
            return self._wait_for(self._in_flight[0], until)
        gated = bool(self._waiting.gated) or self._memory.loading > 0
        if self._doorbell is not None:
            late = Wake.GATE if gated else Wake.DEADLINE
            return Wake.MESSAGE if self._doorbell(self._pause(until)) else late
        pause, advance_to = self._pause(until), getattr(self._clock, "advance_to", None)
        if gated and self._tiers is not None and self._tiers.pending and advance_to is not None:
            self._tiers.wait(None if until is None else max(0.0, until - self._clock.now()))
            return Wake.GATE
        if pause is not None and advance_to is not None:
            advance_to(self._clock.now() + pause)
            return Wake.GATE if gated else Wake.DEADLINE
        if gated:
            return Wake.GATE
        return Wake.DEADLINE if len(self._waiting) or len(self._running) else Wake.NOTHING

    def idle(self) -> None:
        self._reports.between_steps()  # a flush or an abort, after which there may be no step for long
        if self._in_flight or len(self._running) or not self._unchecked:
            return
        self._unchecked = False
        self._memory.allocator.compact()
        if not len(self._waiting):
            self._ratio.reset()
        self._reporter.idle(self._clock.now())
        if self.config.check_invariants == "step":
            self._invariants.check()
        elif self.config.check_invariants == "idle":
            try:
                self._invariants.check()
            except InvariantViolation:
                # A server that still answers is worth more than one that proves a point by dying.
                self._invariant_failures += 1
                log.exception("the idle check failed")

    def close(self) -> None:
        """Nothing is open any more; the worker is closed by whoever made it. May be called twice."""
        self._gates.close()
        if self._tiers is not None:
            self._tiers.close()

    # ---- numbers

    @property
    def committed_steps(self) -> int:
        return self._committed

    def state(self) -> SchedulerState:
        accounts = self._memory.accounts(int(self._running["held_tokens"].sum()))
        return SchedulerState(
            running=len(self._running),
            waiting=len(self._waiting),
            in_flight=len(self._in_flight),
            steps=self._committed,
            last_step_age_s=None if self._last_commit is None else self._clock.now() - self._last_commit,
            total=accounts.total,
            free=accounts.free,
            evictable=accounts.evictable,
            protected=accounts.protected,
            pending=accounts.pending,
            held=accounts.held,
            duplicate_rids=self._control.duplicate_rids,
            invariant_failures=self._invariant_failures,
            retractions=self._retraction.total,
            new_token_ratio=self._ratio.value,
            tiers={} if self._tiers is None else self._tiers.numbers(),
        )

    def why(self, name: str) -> dict[str, Any]:
        """See `DecisionLog.why`."""
        return self._decisions.why(name)

    def decisions(self) -> list[StepDecision]:
        """The newest rounds of deciding, oldest first, as the ring holds them."""
        return self._decisions.entries()

    def check_invariants(self) -> None:
        """Raises InvariantViolation. For tests and operators; may be slow."""
        self._invariants.check()

    # ---- helpers

    def _mute(self, muted: bool) -> None:
        self._reports.mute(muted)
        self._reporter.mute(muted)

    def _view(self) -> SchedulerView:
        step = self._decided + 1
        return SchedulerView(
            now=self._clock.now(),
            seed=step_seed(self.config.seed, step),
            step=step,
            free=self._memory.free_slots(),
            evictable=self._memory.sizes().evictable,
            total=self._memory.total,
            page_size=self._memory.page_size,
            max_running=self.config.max_running_requests,
            max_prefill=self.config.max_prefill_tokens,
        )

    def _promised(self) -> int:
        """Slots that running requests may still take."""
        return int(self._running.promises(self._ratio.value, self._memory.page_size).sum())

    def _pause(self, until: float | None) -> float | None:
        """Seconds to block for a message; None: until one comes."""
        rest = None if until is None else max(0.0, until - self._clock.now())
        if not len(self._waiting) and not len(self._running):
            if self._tiers is None or not self._tiers.pending:
                return rest
            return COPY_PAUSE if rest is None else min(rest, COPY_PAUSE)
        # Somebody is there and the policy lets nobody run; what it waits for may be the time alone.
        return DECLINED_PAUSE if rest is None else min(rest, DECLINED_PAUSE)

    def _wait_for(self, step: StepInFlight, until: float | None) -> Wake:
        if step.pending is not None and not step.ready():
            try:
                step.fetch(None if until is None else max(0.0, until - self._clock.now()))
            except TimeoutError:
                return Wake.DEADLINE
        return Wake.RESULT

    @contextmanager
    def _worker_call(self) -> Iterator[None]:
        """Timed; and a batch that was done by half cannot be taken back."""
        began = self._clock.now()
        try:
            yield
        except Exception as error:
            self._ledger.record(self.config.worker_plugin, FaultScope.STOP, error)
            raise
        self._worker_seconds += self._clock.now() - began

    def _own(self, step: InFlight) -> StepInFlight:
        for mine in self._in_flight:
            if mine is step:
                return mine
        raise RuntimeError("this step was not launched here, or it was committed before")
