"""Builds the parts that a scheduler is composed of and shows each the others that it needs. Drives none of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jackfield.hookspecs import Gate, PrefixCache, SchedulePolicy, WorkerLimits
from jackfield.ipc.channels import Sender
from jackfield.managers.scheduler.admission import Admission
from jackfield.managers.scheduler.batch import RowDeltas
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.decisions import DecisionLog
from jackfield.managers.scheduler.gates import Gates
from jackfield.managers.scheduler.grammar.gate import GATE_NAME as GRAMMAR_GATE
from jackfield.managers.scheduler.grammar.gate import GrammarGate, GrammarSetup
from jackfield.managers.scheduler.grammar.masks import Masker
from jackfield.managers.scheduler.hints import PrefixHints
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.invariants import InvariantChecker
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.planner import Planner
from jackfield.managers.scheduler.policy_guard import PolicyGuard
from jackfield.managers.scheduler.preemption import Preemption
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.release import Releaser
from jackfield.managers.scheduler.reports import StepReports
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.results import ResultApplier
from jackfield.managers.scheduler.retraction import Retraction
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.tiers.store import GATE_NAME, KVTiers, TierSetup
from jackfield.managers.scheduler.timeouts import Timeouts
from jackfield.managers.scheduler.watchers import Ledger, Observers
from jackfield.managers.scheduler.window import Window
from jackfield.observability.clock import Clock
from jackfield.stack.runtime.metering import Meter


@dataclass(frozen=True, kw_only=True)
class Parts:
    """live: rid -> every request that is open, waiting and running ones. tiers, grammars: None without any."""

    live: dict[str, Request]
    waiting: WaitingQueue
    running: RunningTable
    memory: KVMemory
    tiers: KVTiers | None
    grammars: GrammarGate | None
    masker: Masker
    gates: Gates
    policy: PolicyGuard
    hints: PrefixHints
    ratio: NewTokenRatio
    deltas: RowDeltas
    outbox: Outbox
    releaser: Releaser
    retraction: Retraction
    planner: Planner
    results: ResultApplier
    timeouts: Timeouts
    decisions: DecisionLog
    reports: StepReports
    invariants: InvariantChecker


def build_parts(
    config: SchedulerConfig,
    limits: WorkerLimits,
    *,
    cache: PrefixCache,
    policy: SchedulePolicy,
    clock: Clock,
    to_detokenizer: Sender,
    observers: Observers,
    ledger: Ledger,
    meter: Meter,
    gates: Sequence[tuple[str, Gate]],
    tiers: TierSetup | None,
    grammars: GrammarSetup | None = None,
) -> Parts:
    live: dict[str, Request] = {}
    waiting = WaitingQueue(config.max_queued_requests, config.max_skips)
    decisions = DecisionLog(
        steps=config.decision_steps,
        ended=config.ended_lives,
        rich=observers.listens("jackfield_step_decided"),
        lives_wanted=observers.listens("jackfield_requests_explained"),
    )
    ratio = NewTokenRatio(config.schedule_conservativeness)
    running = RunningTable(limits.max_rows, limits.max_tokens_per_row)
    window = None if limits.window is None else Window(limits, limits.window, config.chunk)
    memory = KVMemory(limits, meter.watch(config.cache_plugin, cache), ledger, config.cache_plugin, window)
    grammar_gate = None if grammars is None else GrammarGate(grammars, ledger)
    if grammar_gate is not None:
        gates = [(GRAMMAR_GATE, grammar_gate), *gates]
    masker = Masker(
        limits.vocab_size, config.eos_token_ids, ledger, "grammar" if grammars is None else grammars.plugin, meter
    )
    kv_tiers: KVTiers | None = None
    if tiers is not None:
        metered = [(name, meter.watch(name, tier)) for name, tier in tiers.tiers]
        kv_tiers = memory.tiers = KVTiers(
            replace(tiers, tiers=metered), memory, ledger, lambda: running.promised(ratio.value, memory.page_size)
        )
        gates = [*gates, (GATE_NAME, kv_tiers.gate)]  # the last one: what it loads should not wait for others
    gate_keeper = Gates(gates, waiting, ledger, decisions.lives, clock.now, meter)
    guard = PolicyGuard(policy, ledger, config.policy_plugin, decisions, meter)
    deltas = RowDeltas()
    outbox = Outbox(to_detokenizer, config.output_patience)
    hold_back = HoldBack(0 if config.whole_prompts else config.hold_back_tokens, limits.page_size)
    releaser = Releaser(
        live=live,
        waiting=waiting,
        running=running,
        memory=memory,
        deltas=deltas,
        hold_back=hold_back,
        outbox=outbox,
        lives=decisions.lives,
    )
    hints = PrefixHints(config.policy_needs, waiting, memory)
    admission = Admission(
        max_running=config.max_running_requests,
        chunk=config.chunk,
        hints=hints,
        waiting=waiting,
        running=running,
        memory=memory,
        policy=guard,
        hold_back=hold_back,
        deltas=deltas,
        ratio=ratio,
        decisions=decisions,
    )
    retraction = Retraction(
        waiting=waiting,
        running=running,
        memory=memory,
        policy=guard,
        releaser=releaser,
        ratio=ratio,
        decisions=decisions,
    )
    preemption = Preemption(
        max_skips=config.max_skips,
        waiting=waiting.table.view,
        running=running,
        memory=memory,
        policy=guard,
        ratio=ratio,
    )
    planner = Planner(
        max_prefill=config.max_prefill_tokens,
        max_tokens=limits.max_tokens,
        per_row=limits.max_tokens_per_row,
        chunk=config.chunk,
        max_prefills=config.max_consecutive_prefills,
        running=running,
        memory=memory,
        policy=guard,
        admission=admission,
        retraction=retraction,
        preemption=preemption,
        ratio=ratio,
        decisions=decisions,
    )
    results = ResultApplier(
        config,
        running=running,
        memory=memory,
        hold_back=hold_back,
        releaser=releaser,
        outbox=outbox,
        ledger=ledger,
        masker=masker,
    )
    timeouts = Timeouts(
        config.request_waiting_timeout,
        config.request_running_timeout,
        queue=waiting,
        table=running,
        releaser=releaser,
    )
    reports = StepReports(
        policy=guard,
        observers=observers,
        take_lives=decisions.lives.take,
        memory=memory,
        tables=(waiting.table, running),
    )
    return Parts(
        live=live,
        waiting=waiting,
        running=running,
        memory=memory,
        tiers=kv_tiers,
        grammars=grammar_gate,
        masker=masker,
        gates=gate_keeper,
        policy=guard,
        hints=hints,
        ratio=ratio,
        deltas=deltas,
        outbox=outbox,
        releaser=releaser,
        retraction=retraction,
        planner=planner,
        results=results,
        timeouts=timeouts,
        decisions=decisions,
        reports=reports,
        invariants=InvariantChecker(live=live, waiting=waiting, running=running, memory=memory, ratio=ratio),
    )
