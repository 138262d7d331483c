"""The grammar backend of a run, as the main process and the scheduler make it. Knows no backend by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial

from jackfield.entrypoints.child_process import child_environment
from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.hookspecs import FaultScope, GrammarBackend, GrammarError, WorkerLimits
from jackfield.managers.fields.grammar import Grammars
from jackfield.managers.grammar.compiler import ProcessCompiler
from jackfield.managers.grammar.messages import CompilerOrders
from jackfield.managers.grammar.process import CompilerProcess
from jackfield.managers.scheduler.grammar.gate import GrammarSetup
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter

KIND = "grammar"


def request_grammars(
    plan: ReplicaPlan, loaded: LoadedStack, texts: Texts, ledger: FaultLedger, meter: Meter
) -> Grammars:
    """What the main process checks requests with. Raises PluginLoadError."""
    plugins = loaded.of(KIND)
    if not plugins:
        return Grammars()
    return Grammars(
        backend=_Backend(plan, plugins[0], texts, plan.facts.config.vocab_size).made(meter),
        fault=partial(ledger.record, plugins[0].selected.key, FaultScope.REQUEST),
    )


def scheduler_grammars(
    plan: ReplicaPlan,
    loaded: LoadedStack,
    texts: Texts,
    limits: WorkerLimits,
    ledger: FaultLedger,
    meter: Meter,
    ring: Callable[[], None] | None = None,
) -> GrammarSetup | None:
    """What the scheduler binds requests with; None: no backend was chosen. limits: the worker's; ring: wakes a scheduler
    that waits.

    A server's compiler begins to get warm at once; that of a run inside another program begins with the first grammar.
    Raises PluginLoadError."""
    plugins = loaded.of(KIND)
    if not plugins:
        return None
    (plugin,), args = plugins, plan.args
    side = _Backend(plan, plugin, texts, limits.vocab_size)

    def start() -> CompilerProcess:
        sys_path = [os.path.abspath(entry) for entry in sys.path]
        orders = CompilerOrders(
            plugin=plugin.selected,
            vocab_size=limits.vocab_size,
            stop_ids=plan.facts.config.eos_token_ids,
            vocab=list(side.vocab()),
            special_ids=dict(side.special_ids),
            timeout=args.grammar_compile_timeout,
            memory=args.grammar_compile_memory,
            side_by_side=args.grammar_compilations,
            sys_path=sys_path,
        )
        return CompilerProcess(orders, child_environment(os.environ, sys_path))

    compiler = ProcessCompiler(
        start,
        side.made(meter),
        partial(ledger.record, plugin.selected.key, FaultScope.REQUEST),
        timeout=args.grammar_compile_timeout,
        eager=args.topology == "processes",
        news=ring,
    )
    return GrammarSetup(
        compiler=compiler,
        cache_bytes=args.grammar_cache_bytes,
        max_waiting=args.max_waiting_grammars,
        plugin=plugin.selected.key,
    )


class _Backend:
    """vocab: see `GrammarContext`; it is made once, by whoever asks first."""

    def __init__(self, plan: ReplicaPlan, plugin: LoadedPlugin, texts: Texts, size: int) -> None:
        self._plan = plan
        self._plugin = plugin
        self._size = size
        tokenizer = texts.tokenizer  # taken now: what is kept here must not keep the model's files open

        @cache
        def vocab() -> Sequence[bytes]:
            assert tokenizer is not None  # else the resolution would have chosen no backend
            return tokenizer.vocabulary(size)

        self.vocab = vocab
        self.special_ids = tokenizer.control_ids() if tokenizer is not None else {}

    def made(self, meter: Meter) -> GrammarBackend:
        """Raises PluginLoadError."""
        backend: GrammarBackend = self._plugin.make(
            {
                "vocab_size": self._size,
                "stop_ids": self._plan.facts.config.eos_token_ids,
                "vocab": self.vocab,
                "special_ids": self.special_ids,
            }
        )
        return meter.watch(self._plugin.selected.key, backend, expected=(GrammarError,))
