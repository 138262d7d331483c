"""The answer of resolution as plain records. They cross to child processes as data and hold no plugin object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jackfield.config.model_config import ModelConfig
from jackfield.config.server_args import ServerArgs
from jackfield.config.topology import Topology
from jackfield.hookspecs.kinds import KINDS
from jackfield.hookspecs.kv import KVLayout
from jackfield.hookspecs.model import ModelShape
from jackfield.hookspecs.pooling import Pooling
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.names import instance_key

PHASES = tuple(KINDS["attention"].parts)


@dataclass(frozen=True, kw_only=True)
class SelectedPlugin:
    """One plugin of the run.

    version    of the distribution, as its metadata says
    package    import package whose bytes are hashed; module: the entry-point value
    path       of a one-file plugin: the file, absolute, instead of a package; `digest` is the SHA-256 of its bytes as they were
               when it was found, and no process runs others
    options    as given, unvalidated: loading validates them where the plugin runs
    option_folders   option, dotted -> the folder from which a relative path in it counts, for those of a stack file
    option_sources   option, its first name only -> who gave it, for messages
    phases     for `attention`: which of "prefill", "decode" it serves; else empty
    reason     why it was chosen
    """

    kind: str
    name: str
    instance: str
    distribution: str
    version: str
    package: str
    module: str
    manifest: ManifestRow
    reason: str
    options: dict[str, Any] = field(default_factory=dict)
    phases: tuple[str, ...] = ()
    path: str | None = None
    digest: str = ""
    option_folders: dict[str, str] = field(default_factory=dict)
    option_sources: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Distribution and version, or the file, as messages name it."""
        return self.path if self.path is not None else f"{self.distribution} {self.version}".rstrip()

    @property
    def key(self) -> str:
        """ "kind.instance" """
        return instance_key(self.kind, self.instance)

    @property
    def processes(self) -> tuple[str, ...]:
        """Process roles in which it is loaded."""
        return self.manifest.processes or KINDS[self.kind].processes

    @property
    def described(self) -> str:
        """How messages name it."""
        return f"{self.kind} plugin {self.name!r} ({self.origin})"


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """An installed plugin that was not chosen, and why.

    kind, name   "" where a broken file names none
    origin       distribution and version, or the file
    """

    kind: str
    name: str
    reason: str
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class WeightForm:
    """In which form linear weights are multiplied, see `quantization.py`.

    packed         encodings of the checkpoint that stay packed; others are decoded
    strict         a weight that cannot stay packed is refused, not decoded
    quantization   how the ops plugin quantises plain weights; None: not at all
    """

    packed: tuple[str, ...] = ()
    strict: bool = False
    quantization: str | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """As the flag would say it."""
        return self.quantization or ("gguf" if self.packed else "none")


@dataclass(frozen=True, kw_only=True)
class ResolvedStack:
    """What runs, in the order of the kinds' table; observers and sinks in the order in which they were named.

    layout          the KV layout that all agreed on; None if the worker uses no attention plugin
    weights         None if the worker uses no ops plugin
    worker_thread   whether the worker runs on a thread of its own, see `worker_thread.py`
    """

    plugins: tuple[SelectedPlugin, ...]
    rejected: tuple[Rejected, ...] = ()
    layout: KVLayout | None = None
    layout_reason: str = ""
    weights: WeightForm | None = None
    worker_thread: bool = False
    worker_thread_reason: str = ""

    def of(self, kind: str) -> tuple[SelectedPlugin, ...]:
        """The plugins of one kind."""
        return tuple(plugin for plugin in self.plugins if plugin.kind == kind)

    def one(self, kind: str, phase: str | None = None) -> SelectedPlugin | None:
        """The plugin of an exclusive kind; for `attention` name the phase. None: the kind is not in this stack."""
        for plugin in self.plugins:
            if plugin.kind == kind and (phase is None or phase in plugin.phases):
                return plugin
        return None


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What resolution must know of the model, gathered by `facts.py` before it.

    name      how the model is called when nobody says otherwise
    file      how messages call what was opened
    files     names that the loaders' patterns are matched against
    config    its configuration
    shape     what its code says of it; None if no model plugin is part of the stack
    chat_template   Jinja source of the chat template in effect, behind it that for tools if the model has one of its own; "":
              there is none, or no tokenizer
    pooling   what the run gives of each prompt; None: it generates
    """

    name: str
    file: str
    files: tuple[str, ...]
    config: ModelConfig
    shape: ModelShape | None = None
    chat_template: str = ""
    pooling: Pooling | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """An argument that resolution filled in, and the rule that did it."""

    field: str
    before: Any
    after: Any
    rule: str


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """notes: what could not be decided or checked yet, and why (only without model facts)."""

    args: ServerArgs
    changes: tuple[Change, ...]
    stack: ResolvedStack
    topology: Topology
    notes: tuple[str, ...] = ()
