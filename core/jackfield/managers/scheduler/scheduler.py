"""The scheduler: composes the parts and offers the phases that an event loop drives. It decides nothing itself beyond
which part is asked when; it knows no plugin's package and no device."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jackfield.hookspecs import (
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
from jackfield.managers.scheduler.batch import ScheduleBatch, StepInFlight, book_launch, to_worker_batch
from jackfield.managers.scheduler.config import SchedulerConfig, check_limits
from jackfield.managers.scheduler.control import Control
from jackfield.managers.scheduler.grammar.gate import GrammarSetup
from jackfield.managers.scheduler.intake import Intake
from jackfield.managers.scheduler.invariants import InvariantWatch
from jackfield.managers.scheduler.mailbox import Mailbox
from jackfield.managers.scheduler.parts import build_parts
from jackfield.managers.scheduler.randomness import step_seed
from jackfield.managers.scheduler.reporting import PluginNumbers, Reporter
from jackfield.managers.scheduler.state import SchedulerState
from jackfield.managers.scheduler.swaps import PolicySource, PolicySwaps
from jackfield.managers.scheduler.tiers.store import TierSetup
from jackfield.managers.scheduler.waits import Waits
from jackfield.managers.scheduler.watchers import Ledger, LoggingLedger, NoObservers, Observers
from jackfield.managers.scheduler.worker_calls import WorkerCalls
from jackfield.observability.clock import Clock
from jackfield.stack.runtime.metering import Meter

log = logging.getLogger(__name__)


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
        meter: Meter | None = None,
        doorbell: Callable[[float | None], bool] | None = None,
        plugins: PluginNumbers | None = None,
        gates: Sequence[tuple[str, Gate]] = (),
        tiers: TierSetup | None = None,
        policies: PolicySource | None = None,
        ring: Callable[[], None] | None = None,
        grammars: GrammarSetup | None = None,
    ) -> None:
        """doorbell: blocks until a message waits (True), or so many seconds, or until it is rung (False); None: inline.
        ring: rings it. policies: from which the policy may be swapped.
        plugins: set where the main process cannot see this process's ledger and observers by itself.
        gates: ("gate.instance", gate) in the order in which new requests pass them. grammars: None: no request has one."""
        limits = worker.limits
        check_limits(config, limits)
        self.config = config
        self._limits = limits
        self._clock = clock
        self._mailbox = Mailbox(inbox)
        observers = observers if observers is not None else NoObservers()
        ledger = ledger if ledger is not None else LoggingLedger()
        self._worker = WorkerCalls(worker, clock, ledger, config.worker_plugin)
        parts = build_parts(
            config,
            limits,
            cache=cache,
            policy=policy,
            clock=clock,
            to_detokenizer=to_detokenizer,
            observers=observers,
            ledger=ledger,
            meter=meter if meter is not None else Meter(),
            gates=gates,
            tiers=tiers,
            grammars=grammars,
        )
        self._waiting, self._running, self._memory = parts.waiting, parts.running, parts.memory
        self._policy, self._planner, self._results = parts.policy, parts.planner, parts.results
        self._releaser, self._retraction, self._timeouts = parts.releaser, parts.retraction, parts.timeouts
        self._gates, self._tiers = parts.gates, parts.tiers
        self._ratio, self._deltas, self._outbox = parts.ratio, parts.deltas, parts.outbox
        self._decisions, self._reports = parts.decisions, parts.reports
        self._masker = parts.masker
        self._reporter = Reporter(
            to_main=to_main,
            state=self.state,
            evicted=lambda: self._memory.evicted,
            worker_seconds=lambda: self._worker.seconds,
            interval=config.report_interval,
            collect=config.collect_metrics,
            plugins=plugins,
            grammars=parts.grammars,
        )
        self._swaps = PolicySwaps(
            policies,
            guard=self._policy,
            hints=parts.hints,
            waiting=self._waiting,
            running=self._running,
            decisions=self._decisions,
            outbox=self._outbox,
            observers=observers,
            to_detokenizer=to_detokenizer,
            to_main=to_main,
            view=self._view,
            ring=ring,
        )
        self._control = Control(
            live=parts.live,
            intake=Intake(
                config, total_slots=limits.total_slots, page_size=limits.page_size, grammars=grammars is not None
            ),
            waiting=self._waiting,
            gates=self._gates,
            releaser=self._releaser,
            outbox=self._outbox,
            memory=self._memory,
            to_main=to_main,
            state=self.state,
            mute=self._mute,
            decisions=self._decisions,
            swap=self._swaps.ask,
            max_running=config.max_running_requests,
        )
        self._invariants = InvariantWatch(parts.invariants, config.check_invariants)
        self._waits = Waits(
            worker=self._worker,
            mailbox=self._mailbox,
            doorbell=doorbell,
            clock=clock,
            timeouts=self._timeouts,
            flush=self._control.flush,
            waiting=self._waiting,
            running=self._running,
            memory=self._memory,
            tiers=self._tiers,
        )
        self._in_flight: deque[StepInFlight] = deque()
        self._decided = 0
        self._committed = 0
        self._last_commit: float | None = None
        self._unchecked = True
        self._policy.start(self._waiting.table.view, self._running.view, self._view())

    # ---- phases

    def ingest(self) -> int:
        count = 0
        now = self._clock.now()
        while (message := self._mailbox.receive()) is not None:
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
        return count + self._swaps.poll() + self._control.flush.poll(now)

    def next_batch(self, want: Want = Want.ANY) -> ScheduleBatch | None:
        if not len(self._running) and not len(self._waiting):
            return None
        view = self._view()
        batch = self._planner.plan(view, want, self._decided + 1, quiet=not self._in_flight)
        if batch is not None:
            self._decided += 1
            batch.epoch = self._swaps.epoch
        self._waiting.looked_at()
        self._decisions.decided(batch, view, self._running, len(self._waiting), self._clock.now())
        return batch

    def launch(self, batch: ScheduleBatch, lane: int = 0) -> StepInFlight:
        if lane:
            raise ValueError(f"lane {lane}: this scheduler has one lane, 0")
        running = self._running
        at, alive = batch.located(running)
        if alive is not None:  # somebody was aborted since the decision
            batch, at = batch.only(alive), at[alive]
        now = self._clock.now()
        computed = running["computed"][at]
        self._reports.scheduled(batch, computed, at=now, waiting=len(self._waiting), running=len(running))
        self._reporter.launched(now)
        launched, sample, constrained = None, np.empty(0, dtype=np.bool_), None
        if len(at):
            pools = self.config.pooling is not None
            plain = to_worker_batch(
                batch, running, at, self._deltas, self._memory.rows, self._memory.window, pools=pools
            )
            launched, sample = self._worker.launch(plain), plain.sample
            book_launch(running, at, plain)
            bound = running["constrained"][at] & sample
            constrained = bound if np.count_nonzero(bound) else None
        step = StepInFlight(
            batch=batch,
            started=now,
            launched=launched,
            start=computed,
            sample=sample,
            requests=running["request"][at],
            tenants=self._reports.tenants_of(running, at),
            deferred=self._limits.deferred or constrained is not None,
            constrained=constrained,
        )
        self._in_flight.append(step)
        self._decisions.launched(batch.step, self._clock.now() - now)
        return step

    def sample(self, step: InFlight) -> None:
        mine = self._own(step)
        if mine.constrained is not None and mine is not self._in_flight[0]:
            raise RuntimeError(
                f"step {mine.batch.step} is deferred, and sampled before the commits of the steps before it"
            )
        self._worker.sample(mine, self._masker.masks(mine))

    def commit(self, step: InFlight) -> None:
        mine = self._own(step)
        if mine is not self._in_flight[0]:
            raise RuntimeError(f"step {mine.batch.step} is committed before step {self._in_flight[0].batch.step}")
        began = self._clock.now()
        if mine.launched is not None:
            result = self._worker.fetch(mine)
            began = self._clock.now()
            self._decisions.committing(mine.batch.step)
            self._outbox.epoch = mine.batch.epoch  # who ends now ends by what was decided then
            self._results.apply(mine, result, began)
            self._outbox.epoch = self._swaps.epoch
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
        self._invariants.committed()

    def wait(self, until: float | None = None) -> Wake:
        """Waits for the oldest step in flight, else for a message, and no longer than until the next timeout. Without a
        doorbell (inline) there is nothing to block on: it returns at once, and a virtual clock moves to the step's end, to
        `until`, or by a small pause. DEADLINE also when requests wait or run and nothing is in flight: the caller should take
        another turn."""
        return self._waits.wait(self._in_flight[0] if self._in_flight else None, until)

    def idle(self) -> None:
        self._reports.between_steps()  # a flush or an abort, after which there may be no step for long
        if self._in_flight or len(self._running) or not self._unchecked:
            return
        self._unchecked = False
        self._memory.allocator.compact()
        if not len(self._waiting):
            self._ratio.reset()
        self._reporter.idle(self._clock.now())
        self._invariants.idle()

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
            invariant_failures=self._invariants.failures,
            retractions=self._retraction.total,
            new_token_ratio=self._ratio.value,
            window={}
            if self._memory.window is None
            else self._memory.window.numbers(self._running, self._memory.sizes()),
            tiers={} if self._tiers is None else self._tiers.numbers(),
            worker=self._worker.worker.report(),
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
            running=self._running.view,
        )

    def _own(self, step: InFlight) -> StepInFlight:
        for mine in self._in_flight:
            if mine is step:
                return mine
        raise RuntimeError("this step was not launched here, or it was committed before")
