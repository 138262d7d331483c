"""The grammar backend of a run, as the main process and the scheduler make it. Knows no backend by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.hookspecs import FaultScope, GrammarBackend
from jackfield.managers.fields.grammar import Grammars
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.runtime.faults import FaultLedger

KIND = "grammar"


def request_grammars(plan: ReplicaPlan, loaded: LoadedStack, texts: Texts, ledger: FaultLedger) -> Grammars:
    """What the main process checks requests with. Raises PluginLoadError."""
    plugins = loaded.of(KIND)
    if not plugins:
        return Grammars()
    return Grammars(
        backend=make_backend(plan, plugins[0], texts),
        fault=partial(ledger.record, plugins[0].selected.key, FaultScope.REQUEST),
    )


def make_backend(plan: ReplicaPlan, plugin: LoadedPlugin, texts: Texts) -> GrammarBackend:
    """Raises PluginLoadError."""
    size = plan.facts.config.vocab_size

    def vocab() -> Sequence[bytes]:
        assert texts.tokenizer is not None  # else the resolution would have chosen no backend
        return texts.tokenizer.vocabulary(size)

    backend: GrammarBackend = plugin.make(
        {"vocab_size": size, "stop_ids": plan.facts.config.eos_token_ids, "vocab": vocab}
    )
    return backend
