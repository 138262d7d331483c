"""What the main process knows of its replica beside the answers: metrics, health, the throughput line, plugin numbers.

One object in either topology. It is fed by the tokenizer manager (`requests`, `on_report`) and by whoever serves; it feeds
the sinks. Nothing here blocks or changes a request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.health import HealthMonitor
from jackfield.entrypoints.metrics_hub import MetricsHub
from jackfield.entrypoints.plugin_accounts import PluginAccounts
from jackfield.entrypoints.process_times import cpu_seconds
from jackfield.entrypoints.throughput import ThroughputLog
from jackfield.hookspecs import Exposition, Sample, StackChanged
from jackfield.ipc.messages import PluginReport, SchedulerReport
from jackfield.managers.requests.metrics import RequestMetrics
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.observability.clock import Clock
from jackfield.observability.metrics import METRICS, OTHER, PREFIX
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.loading.load import LoadedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Costs, Meter
from jackfield.stack.runtime.observers import ObserverHub

METHODS = frozenset({"GET", "POST", "PUT", "HEAD", "OPTIONS"})

Processes = Callable[[], Sequence[tuple[str, int]]]


class Monitor:
    """requests   for the tokenizer manager; None without sinks, so that nothing is sampled that nobody reads
    health       see `HealthMonitor`
    plugins      their faults and costs
    """

    def __init__(
        self,
        args: ServerArgs,
        hub: MetricsHub,
        *,
        model_name: str,
        stacks: StackEpochs,
        page_size: int,
        ledger: FaultLedger,
        meter: Meter,
        observers: ObserverHub,
        role: str,
        clock: Clock,
        began: float,
    ) -> None:
        """began: `time.monotonic()` when the launch began; role: of this process."""
        self.hub = hub
        self.requests = RequestMetrics(hub.record) if hub.sinks else None
        self.plugins = PluginAccounts(role, ledger, meter)
        self.health = HealthMonitor(
            clock,
            args.health_timeout,
            busy_since=self._busy_since,
            faults=self.faults,
            overruns=self.plugins.overrunning,
        )
        self._role = role
        self._throughput = ThroughputLog(args.throughput_log_interval)
        self._model_name = model_name
        self._stacks = stacks
        self._page_size = page_size
        self._observers = observers
        self._began = began
        self._manager: TokenizerManager | None = None
        self._processes: Processes = list
        self._tiers: Mapping[str, Mapping[str, int]] = {}
        self._increases = _Increases()

    def attach(self, manager: TokenizerManager, processes: Processes) -> None:
        """The parts that are made after the monitor. processes: (role, pid) of each process of the run."""
        self._manager = manager
        self._processes = processes
        manager.on_report = self.on_report
        manager.on_plugins = self.on_plugins
        manager.on_stack = self.on_stack
        self.hub.record(
            [
                _stack_info(self._stacks.epoch, self._stacks.stack_hash, 1),
                Sample(name="max_total_num_tokens", value=manager.limits.total_slots),
                Sample(name="kv_available_tokens", value=manager.limits.total_slots),
                Sample(name="kv_bytes_per_token", value=manager.limits.kv_bytes_per_slot),
                Sample(name="page_size", value=self._page_size),
            ]
        )

    def on_stack(self, change: StackChanged) -> None:
        """A plugin was swapped."""
        if self._role != "inline":  # there the scheduler has told them
            self._observers.notify("jackfield_stack_changed", stack=change)
        if self.hub.sinks:
            self.hub.record(
                [
                    _stack_info(change.epoch - 1, change.previous_hash, 0),
                    _stack_info(change.epoch, change.stack_hash, 1),
                ]
            )

    def ready(self) -> None:
        """The replica can serve, warm-up included."""
        self.hub.record([Sample(name="startup_time_seconds", value=time.monotonic() - self._began)])

    def on_report(self, report: SchedulerReport) -> None:
        """Raises PluginStop for a sink that failed while `--plugin-faults` is "raise"."""
        self.plugins.take("scheduler", report)
        self._tiers = report.tiers
        self.health.on_report(report)
        self._throughput.on_report(report)
        if self.hub.sinks:
            self.hub.record(self._samples(report))
            self.collect()
            self.hub.check()

    def on_plugins(self, report: PluginReport) -> None:
        """What became of the plugins in a process that is not the scheduler's."""
        self.plugins.take(report.role, report)

    def http_request(self, endpoint: str | None, method: str, status: int, model: str | None = None) -> None:
        """One answered HTTP request. endpoint: the template of the route, None if there is no such route; model: what the
        client named."""
        if not self.hub.sinks:
            return
        known_model = "" if model is None else model if model == self._model_name else OTHER
        labels = (
            ("endpoint", endpoint or OTHER),
            ("method", method if method in METHODS else OTHER),
            ("status", str(status)),
            ("model", known_model),
        )
        self.hub.record([Sample(name="http_requests_total", value=1, labels=labels)])

    def expose(self, accept: str = "") -> Exposition | None:
        """Answer a scrape, or None: no sink is scraped. May block for a moment: not for an event loop."""
        self.collect()
        return self.hub.expose(accept)

    def faults(self) -> dict[str, dict[str, Any]]:
        """Plugin -> {count, by_scope, last, quarantined}, over all processes."""
        return self.plugins.faults()

    def timings(self) -> Costs:
        """Plugin -> hook -> {calls, seconds, exceptions, overruns}, over all processes; what was never called is left out."""
        return self.plugins.costs()

    def collect(self) -> None:
        """Sample what only grows by itself: CPU time, plugin faults and times, drops."""
        if not self.hub.sinks:
            return
        totals: list[tuple[str, tuple[tuple[str, str], ...], float]] = []
        off = []
        for role, pid in self._processes():
            if (seconds := cpu_seconds(pid)) is not None:
                totals.append(("process_cpu_seconds_total", (("role", role),), seconds))
        for plugin, account in self.faults().items():
            for scope, count in account["by_scope"].items():
                totals.append(("plugin_faults_total", (("plugin", plugin), ("scope", scope)), count))
            off.append(
                Sample(name="plugin_quarantined", value=float(account["quarantined"]), labels=(("plugin", plugin),))
            )
        for plugin, hooks in self.timings().items():
            for hook, row in hooks.items():
                labels = (("plugin", plugin), ("hook", hook))
                for what in ("calls", "seconds", "overruns"):
                    totals.append((f"plugin_{what}_total", labels, row[what]))
        for sink in self.hub.sinks:
            totals.append(("metrics_samples_dropped_total", (("sink", sink.name),), sink.dropped))
        for tier, numbers in self._tiers.items():
            totals += _tier_totals(tier, numbers)
        if samples := [*self._increases.of(totals), *off]:
            self.hub.record(samples)

    def close(self) -> None:
        """The last samples, then the sinks."""
        self.collect()
        self.hub.close()

    def _busy_since(self) -> float | None:
        return None if self._manager is None else self._manager.busy_since

    def _samples(self, report: SchedulerReport) -> list[Sample]:
        used = report.kv_total - report.kv_free - report.kv_evictable
        busy = report.running or report.waiting
        gauges = {
            "num_running_reqs": report.running,
            "num_queue_reqs": report.waiting,
            "num_grammar_queue_reqs": report.grammar_waiting,
            "num_used_tokens": used,
            "token_usage": used / report.kv_total if report.kv_total else 0.0,
            "kv_available_tokens": report.kv_free,
            "kv_evictable_tokens": report.kv_evictable,
            "new_token_ratio": report.new_token_ratio,
            "gen_throughput": report.decode_tokens / report.seconds if busy and report.seconds else 0.0,
        }
        if prompt := report.prefill_tokens + report.cached_tokens:
            gauges["cache_hit_rate"] = report.cached_tokens / prompt
        samples = [Sample(name=name, value=value) for name, value in gauges.items()]
        modes = {
            "prefill_compute": report.prefill_tokens,
            "prefill_cache": report.cached_tokens,
            "decode": report.decode_tokens,
        }
        samples += [
            Sample(name="realtime_tokens_total", value=tokens, labels=(("mode", mode),))
            for mode, tokens in modes.items()
            if tokens
        ]
        samples.append(Sample(name="evicted_tokens_total", value=report.evicted_tokens))
        samples.append(Sample(name="num_grammar_cache_hit_total", value=report.grammar_hits))
        samples.append(Sample(name="num_grammar_timeout_total", value=report.grammar_timeouts))
        samples.append(Sample(name="num_grammar_failed_total", value=report.grammar_failures))
        samples += [Sample(name="grammar_compilation_time_seconds", value=value) for value in report.grammar_seconds]
        samples.append(Sample(name="num_retracted_requests_total", value=report.retracted_requests))
        samples.append(Sample(name="forward_execution_seconds_total", value=report.worker_seconds))
        samples.append(Sample(name="scheduler_steps_total", value=report.new_steps))
        samples += [Sample(name="scheduler_step_duration_seconds", value=value) for value in report.step_seconds]
        samples += [Sample(name="scheduler_step_cpu_seconds", value=value) for value in report.step_cpu_seconds]
        return samples


def _stack_info(epoch: int, stack_hash: str, value: int) -> Sample:
    return Sample(name="stack_info", value=value, labels=(("hash", stack_hash), ("epoch", str(epoch))))


def _tier_totals(tier: str, numbers: Mapping[str, int]) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    """The counters of a KV tier; those of all loads come under the name ""."""
    if not tier:
        return [("kv_loaded_tokens_total", (), numbers["loaded_tokens"])]
    label = (("tier", tier),)
    counted = {"hits": "hits", "misses": "misses", "errors": "errors", "dropped": "dropped_writes"}
    totals: list[tuple[str, tuple[tuple[str, str], ...], float]] = [
        (f"kv_tier_{name}_total", label, numbers[number]) for number, name in counted.items()
    ]
    for way, number in (("read", "bytes_read"), ("written", "bytes_written")):
        totals.append(("kv_tier_bytes_total", (*label, ("direction", way)), numbers[number]))
    return totals


class _Increases:
    """Totals in, increases out; thread-safe. A total that fell (a process was replaced) counts from its new value on."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._lock = threading.Lock()

    def of(self, totals: Sequence[tuple[str, tuple[tuple[str, str], ...], float]]) -> list[Sample]:
        samples = []
        with self._lock:
            for name, labels, total in totals:
                last = self._last.get((name, labels), 0.0)
                self._last[name, labels] = total
                if total > last:
                    samples.append(Sample(name=name, value=total - last, labels=labels))
        return samples


def make_monitor(
    loaded: LoadedStack,
    args: ServerArgs,
    *,
    model_name: str,
    stacks: StackEpochs,
    ledger: FaultLedger,
    meter: Meter,
    observers: ObserverHub,
    role: str,
    clock: Clock,
    began: float,
) -> Monitor:
    """The monitor of the process that holds the tokenizer manager, with its sinks started. Raises PluginLoadError."""
    fields: Mapping[str, Any] = {"prefix": PREFIX, "constant_labels": (("model_name", model_name),)}
    hub = MetricsHub([(plugin.selected.key, plugin.make(fields)) for plugin in loaded.of("metrics")], ledger, meter)
    hub.start(METRICS)
    return Monitor(
        args,
        hub,
        model_name=model_name,
        stacks=stacks,
        page_size=args.page_size,
        ledger=ledger,
        meter=meter,
        observers=observers,
        role=role,
        clock=clock,
        began=began,
    )
