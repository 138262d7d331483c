"""Sends `SchedulerReport`: what the main process needs for metrics, health and the log. Knows no metric by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jackfield.ipc.channels import Sender
from jackfield.ipc.messages import HookCost, PluginFaults, SchedulerReport
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.grammar.gate import GrammarGate, GrammarNumbers
from jackfield.managers.scheduler.state import SchedulerState

PluginNumbers = Callable[[], tuple[Mapping[str, Mapping[str, Any]], Mapping[str, Mapping[str, Mapping[str, float]]]]]
"""Gives the fault ledger's snapshot and what plugins cost in this process."""


class Reporter:
    """interval   least seconds between two reports while steps run; 0: one a step
    collect       whether to keep every step's duration
    plugins       None if the main process has the same ledger and observers (one process)
    grammars      None if no request has one
    cpu           CPU seconds of this thread
    """

    def __init__(
        self,
        *,
        to_main: Sender,
        state: Callable[[], SchedulerState],
        evicted: Callable[[], int],
        worker_seconds: Callable[[], float],
        interval: float,
        collect: bool,
        plugins: PluginNumbers | None = None,
        grammars: GrammarGate | None = None,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._to_main = to_main
        self._state = state
        self._evicted = evicted
        self._worker_seconds = worker_seconds
        self._interval = interval
        self._collect = collect
        self._plugins = plugins
        self._grammars = grammars
        self._cpu = cpu
        self._muted = False
        self._sent_at: float | None = None
        self._since: float | None = None
        self._last: tuple[int, ...] = ()
        self._in_flight = 0
        self._cpu_from = (0, 0.0)  # the thread, and its CPU seconds, from which the next step to be committed counts
        self._clear()

    def launched(self, now: float) -> None:
        """A step begins."""
        if self._since is None:
            self._since = now
        if self._collect and (not self._in_flight or self._cpu_from[0] != threading.get_ident()):
            self._cpu_from = (threading.get_ident(), self._cpu())
        self._in_flight += 1

    def committed(self, step: StepInFlight, now: float, open_requests: int) -> None:
        """A step was applied; sends if it is time, or if nothing is left to do."""
        batch = step.batch
        self._steps += 1
        self._in_flight -= 1
        prefills = batch.prefills
        self._prefill += int(batch.new_tokens[:prefills].sum())
        self._decode += 0 if step.result is None else len(step.result.tokens)
        if batch.admitted:
            # A request that has just got its row has computed nothing: what is there came out of the cache.
            admitted = np.isin(batch.uids, np.array(batch.admitted, dtype=np.int64))
            self._cached += int(step.start[admitted].sum())
        self._retracted += len(batch.retracted)
        if self._collect:
            self._step_seconds.append(now - step.started)
            self._step_cpu_seconds.append(self._spent())
        if not open_requests or self._sent_at is None or now - self._sent_at >= self._interval:
            self._send(self._state(), now)

    def _spent(self) -> float:
        """CPU seconds since the launch, or since the commit of the step before where steps overlap. In one process whoever
        waits for an answer runs the scheduler: of a step that others began, only this thread's part is known."""
        (thread, began), here, cpu = self._cpu_from, threading.get_ident(), self._cpu()
        self._cpu_from = (here, cpu)
        return max(0.0, cpu - began) if here == thread else 0.0

    def idle(self, now: float) -> None:
        """Nothing can run; sends if the numbers are not those that were sent last."""
        state = self._state()
        if _numbers(state) != self._last or (self._grammars is not None and self._grammars.has_news):
            self._send(state, now)

    def mute(self, muted: bool) -> None:
        """During the warm-up nothing is sent, and what was counted is forgotten at its end."""
        self._muted = muted
        self._sent_at = None
        if self._grammars is not None:
            self._grammars.take()
        self._clear()

    def _send(self, state: SchedulerState, now: float) -> None:
        if self._muted:
            return
        faults, hooks = ({}, {}) if self._plugins is None else self._plugins()
        since = self._since
        grammars = GrammarNumbers() if self._grammars is None else self._grammars.take()
        self._to_main.send(
            SchedulerReport(
                steps=state.steps,
                running=state.running,
                waiting=state.waiting,
                kv_total=state.total,
                kv_free=state.free,
                kv_evictable=state.evictable,
                kv_protected=state.protected,
                kv_pending=state.pending,
                kv_held=state.held,
                seconds=0.0 if since is None else max(0.0, now - since),
                new_steps=self._steps,
                prefill_tokens=self._prefill,
                cached_tokens=self._cached,
                decode_tokens=self._decode,
                evicted_tokens=self._evicted() - self._evicted_before,
                retracted_requests=self._retracted,
                new_token_ratio=state.new_token_ratio,
                tiers={tier: dict(numbers) for tier, numbers in state.tiers.items()},
                worker_seconds=self._worker_seconds() - self._worker_before,
                grammar_waiting=0 if self._grammars is None else self._grammars.waiting,
                grammar_hits=grammars.hits,
                grammar_timeouts=grammars.timeouts,
                grammar_failures=grammars.failures,
                grammar_seconds=grammars.seconds,
                step_seconds=self._step_seconds,
                step_cpu_seconds=self._step_cpu_seconds,
                faults={name: PluginFaults(**account) for name, account in faults.items()},
                hooks={plugin: {hook: HookCost(**row) for hook, row in rows.items()} for plugin, rows in hooks.items()},
            )
        )
        self._last = _numbers(state)
        self._sent_at = now
        self._clear()
        if state.running or state.waiting or state.in_flight:
            self._since = now

    def _clear(self) -> None:
        self._since = None
        self._steps = self._prefill = self._cached = self._decode = self._retracted = 0
        self._evicted_before = self._evicted()
        self._worker_before = self._worker_seconds()
        self._step_seconds: list[float] = []
        self._step_cpu_seconds: list[float] = []


def _numbers(state: SchedulerState) -> tuple[int, ...]:
    return (
        state.steps,
        state.running,
        state.waiting,
        state.free,
        state.evictable,
        state.protected,
        state.pending,
        state.held,
    )
