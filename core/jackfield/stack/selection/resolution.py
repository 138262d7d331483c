"""Resolution: arguments, device, model and catalogue in; completed arguments, stack and topology out.

A pure function apart from the probes, which are asked through `prober`. It starts nothing and loads no plugin. Every
choice, every filled-in argument and every rejection carries its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.config.device import DeviceDescription
from jackfield.config.dtype import resolve_dtype
from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.config.names import AUTO, NONE, PluginUse
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import option_folders, option_sources
from jackfield.config.stack_file import SHARED
from jackfield.config.topology import SERVING, derive_topology
from jackfield.hookspecs import EMBEDDING, Need
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.names import instance_key
from jackfield.stack.resolved import (
    PHASES,
    ModelFacts,
    Rejected,
    Resolution,
    ResolvedStack,
    SelectedPlugin,
    WeightForm,
)
from jackfield.stack.selection.access import Access, refuse_unknown_entries
from jackfield.stack.selection.attention import AttentionChoice, AttentionSelection
from jackfield.stack.selection.checks import (
    cache_problems,
    device_problems,
    dtype_problems,
    feature_problems,
    manifest_of,
)
from jackfield.stack.selection.choice import Choice, Selector, as_selected, described
from jackfield.stack.selection.completion import Completion
from jackfield.stack.selection.file_checks import refuse_unusable_files, refuse_unused_files
from jackfield.stack.selection.grammar import select_grammar
from jackfield.stack.selection.graphs import refuse_large_sizes, refuse_unused_sizes
from jackfield.stack.selection.invariance import Invariance
from jackfield.stack.selection.layouts import agree
from jackfield.stack.selection.memory import refuse_unheeded
from jackfield.stack.selection.models import select_loader, select_model, select_worker
from jackfield.stack.selection.parsers import WORDS, ParserSelection
from jackfield.stack.selection.probes import Prober, asking_only, no_probe, probe_here, with_the_probes
from jackfield.stack.selection.quantization import QuantizationChoice
from jackfield.stack.selection.routes import with_own_routes
from jackfield.stack.selection.worker_thread import worker_thread

__all__ = ["Resolution", "resolve"]

OWN = f"{AUTO}: the project's protocols that are installed"
"""Why a protocol serves that nobody named."""


def resolve(
    args: ServerArgs,
    device: DeviceDescription,
    model: ModelFacts | None,
    catalogue: Catalogue,
    provenance: Mapping[str, str] | None = None,
    *,
    prober: Prober = probe_here,
) -> Resolution:
    """Decide the whole run.

    model        from `gather_model_facts`; None while the model is not here yet: what depends on it is left open and noted
    provenance   field -> where its value came from, for the messages

    Raises ConfigurationError for the first thing that cannot be.
    """
    return _Resolver(args, device, model, catalogue, provenance or {}, prober).run()


class _Resolver:
    """The state of one resolution."""

    def __init__(
        self,
        args: ServerArgs,
        device: DeviceDescription,
        model: ModelFacts | None,
        catalogue: Catalogue,
        provenance: Mapping[str, str],
        prober: Prober,
    ) -> None:
        self.args = args
        self.device = device
        self.model = model
        access = Access(args.plugin_allow, args.plugin_deny)
        self.catalogue = access.settled(catalogue)
        self.provenance = provenance
        asked = asking_only(prober, lambda row: access.trusts(row) or self._is_named(row))
        self.prober = no_probe if model is None else asked
        self.refused_prober = asked  # what a machine lacks does not hang on the model
        self.selector = Selector(self.catalogue, access, provenance)
        self.completion = Completion(args)
        self.plugins: list[SelectedPlugin] = []
        self.notes: list[str] = []
        self.undecided: set[str] = set()
        self.dtype: str | None = None
        self.weights: WeightForm | None = None

    def run(self) -> Resolution:
        refuse_unknown_entries(
            self.catalogue,
            [(self.selector.source(name), getattr(self.args, name)) for name in ("plugin_allow", "plugin_deny")],
        )
        refuse_unusable_files(self.catalogue, self.selector.source("plugin"))
        self._decide_device_and_dtype()
        worker = select_worker(self.selector, self.args, self.catalogue, self.device.type, self.dtype)
        self._add("worker", worker)
        if self.model is not None and (pooling := self.model.pooling) is not None:
            lacking = feature_problems(worker.row, ["pooling"], "a run that does not generate")
            if lacking:
                raise ConfigurationError(f"{described(worker.row)}: {lacking[0]}; name another --worker")
            what = (
                f"vectors of {pooling.width} entries"
                if pooling.kind == EMBEDDING
                else f"scores of {pooling.width} labels"
            )
            self.notes.append(f"the run gives {what} and generates no text")
        needs = frozenset(manifest_of(worker.row).needs)
        refuse_unheeded(self.args, worker.row, self.dtype, self.selector.source)
        if self.dtype is not None and self.args.kv_cache_dtype == "auto" and "attention" in needs:
            self.completion.fill("kv_cache_dtype", self.dtype, "the run's dtype")
        self._decide_loader()
        self._decide_model(worker.row, needs)
        ops = self._decide_ops(worker.row, needs)
        layout = self._decide_attention(worker.row, needs, ops)
        decode = None if layout is None else layout[0].choices["decode"].row
        self._check_graphs([row for row in (worker.row, decode, ops) if row is not None])
        loop = self._decide_scheduling()
        self._decide_grammar(worker.row)
        if self.args.kv_tier and "kv_move" not in manifest_of(worker.row).features:
            raise ConfigurationError(
                f"{self.selector.source('kv_tier')}: {described(worker.row)} makes no copies of its KV (feature 'kv_move')"
            )
        self._decide_parsers()
        for kind in (kind.name for kind in KINDS.values() if not kind.exclusive):
            self._decide_uses(kind, self._routes() if kind == "routes" else self.args.uses(kind))
        self._check_processors(worker.row)
        self._check_options()
        if not self.provenance.get("plugin", "").endswith(SHARED):
            refuse_unused_files(self.catalogue, self.plugins, self.selector.source("plugin"))
        self.completion.fill_from_model(self.model)
        refuse_large_sizes(self.completion.completed(), self.selector.source)
        if self.args.topology is None:
            self.completion.fill(
                "topology", SERVING, "what `jackfield serve` runs; Engine and `jackfield generate` run inline"
            )
        args = self.completion.completed()
        order = list(KINDS)
        self.plugins.sort(key=lambda plugin: order.index(plugin.kind))  # stable: phases and uses keep their order
        threaded, why = worker_thread(loop, worker.row)
        stack = ResolvedStack(
            plugins=tuple(self.plugins),
            rejected=self._rejected(),
            layout=None if layout is None else layout[0].known[layout[1]],
            layout_reason="" if layout is None else layout[2],
            weights=self.weights,
            worker_thread=threaded,
            worker_thread_reason=why,
        )
        return Resolution(
            args=args,
            changes=self.completion.changes(),
            stack=stack,
            topology=derive_topology(args),
            notes=tuple(self.notes),
        )

    def _decide_device_and_dtype(self) -> None:
        if self.args.device == "auto":
            self.completion.fill("device", self.device.type, self.device.reason or "found on this machine")
        if self.model is not None:
            self.dtype, reason = resolve_dtype(self.args.dtype, self.model.config.dtype, self.device)
            if self.args.dtype == "auto":
                self.completion.fill("dtype", self.dtype, reason)
            self.notes.extend(self.model.config.notes)
        elif self.args.dtype != "auto":
            self.dtype = self.args.dtype

    def _decide_loader(self) -> None:
        if self.model is None:
            if self.args.plugin_for("loader") is None:
                self._leave_open("loader", "which loader reads the model")
                return
            choice = self.selector.named("loader", self.args.load_format, "load_format", lambda row: [])
        else:
            choice = select_loader(self.selector, self.args, self.model.file, self.model.files)
            if self.args.plugin_for("loader") is None:
                choice = Choice(choice.row, f"recognises {self.model.file}, {choice.reason}")
        self._add("loader", choice)
        if self.args.plugin_for("loader") is None:
            self.completion.fill("load_format", choice.row.name, choice.reason)

    def _decide_model(self, worker: PluginRow, needs: frozenset[str]) -> None:
        if "model" not in needs:
            self._leave_out("model", worker, ("model_impl",))
        elif self.model is None:
            what = "what the model asks of attention"
            if self.args.model_impl is None:
                self._leave_open("model", f"which plugin has the model's code, and {what}")
            else:
                self.notes.append(f"the model is not here yet, so it is open {what}")
                self._add(
                    "model", self.selector.named("model", self.args.model_impl, "model_impl", self._hardware_problems)
                )
        else:
            architecture = self.model.config.architecture
            choice = select_model(self.selector, self.args, architecture, self.catalogue, self.device.type, self.dtype)
            reason = choice.reason
            if self.args.model_impl is None:
                choice = Choice(choice.row, f"offers {architecture}, {reason}")
                self.completion.fill("model_impl", choice.row.name, choice.reason)
            self._add("model", choice)

    def _decide_ops(self, worker: PluginRow, needs: frozenset[str]) -> PluginRow | None:
        quantization = QuantizationChoice(
            asked=self.args.quantization,
            source=self.selector.source("quantization"),
            dtype=self.dtype,
            model=self.model,
            catalogue=self.catalogue,
        )
        quantization.refuse_unknown()
        if "ops" not in needs:
            quantization.refuse_for_worker(worker.name)
            self._leave_out("ops", worker, ("ops",))
            return None
        asked = self.args.enable_deterministic_inference
        invariance = Invariance(asked, self.device.type, self.dtype, self.catalogue)
        quantization.refuse_for_model()

        def problems(row: PluginRow) -> list[str]:
            found = self._hardware_problems(row) + invariance.problems(row) + quantization.problems(row)
            if found:
                return with_the_probes(found, self.refused_prober, row, self._need(), self.device)
            return self.prober(row, self._need(), self.device)

        row = self._decide("ops", problems).row
        self.weights = quantization.decide(row)
        return row

    def _decide_attention(
        self, worker: PluginRow, needs: frozenset[str], ops: PluginRow | None
    ) -> tuple[AttentionChoice, str, str] | None:
        if "attention" not in needs:
            fields = ("attention_backend", *(f"{phase}_attention_backend" for phase in PHASES))
            self._leave_out("attention", worker, fields)
            return None
        shape = None if self.model is None else self.model.shape
        selection = AttentionSelection(
            self.args, self.device, self.dtype, shape, self.catalogue, self.prober, self.refused_prober
        )
        chosen = selection.choose(self.selector)
        prefill, decode = (chosen.choices[phase] for phase in PHASES)
        if prefill.row is decode.row:
            self._add("attention", prefill, phases=PHASES)
        else:
            for phase in PHASES:
                self._add("attention", chosen.choices[phase], phases=(phase,))
        free = [phase for phase in PHASES if self.args.plugin_for("attention", phase) is None]
        if len(free) == len(PHASES):
            self.completion.fill("attention_backend", prefill.row.name, prefill.reason)
        else:
            for phase in free:
                choice = chosen.choices[phase]
                self.completion.fill(f"{phase}_attention_backend", choice.row.name, choice.reason)
        return chosen, *agree(chosen.layouts, ops)

    def _decide_scheduling(self) -> PluginRow:
        """Returns the event loop."""
        named = self.args.plugin_for("schedule_policy")
        found = self.catalogue.find("schedule_policy", named) if named is not None else ()
        wanted = found[0].manifest.needs if found and found[0].manifest is not None else ()
        cache = self._decide(
            "cache",
            lambda row: self._hardware_problems(row) + feature_problems(row, wanted, f"schedule policy {named!r}"),
        )

        self._decide(
            "schedule_policy",
            lambda row: self._hardware_problems(row) + cache_problems(row, manifest_of(cache.row)),
        )
        return self._decide("event_loop", self._hardware_problems).row

    def _routes(self) -> tuple[PluginUse, ...]:
        """With the project's own in the place of "auto"."""
        uses = self.args.routes
        expanded = with_own_routes(uses, self._own_routes)
        if expanded != uses:
            self.completion.fill("routes", expanded, OWN)
        return expanded

    def _own_routes(self, name: str) -> bool:
        return any(
            row.status is Status.OK and self.selector.only_named(row) is None
            for row in self.catalogue.find("routes", name)
        )

    def _decide_parsers(self) -> None:
        template = "" if self.model is None else self.model.chat_template
        selection = ParserSelection(self.args, template, self.catalogue, self.selector, self.provenance)
        parts = KINDS["parser"].parts
        free = [part for part in parts if getattr(self.args, parts[part]) is None]
        if self.model is None and free:
            self._leave_open("parser", f"which parser reads {' and which '.join(WORDS[part] for part in free)}")
        for part in parts:
            if self.model is None and part in free:
                continue
            chosen = selection.choose(part)
            if chosen.choice is not None:
                self._add("parser", chosen.choice, phases=(part,))
            if part in free:
                name = NONE if chosen.choice is None else chosen.choice.row.name
                self.completion.fill(parts[part], name, chosen.reason)
        selection.reject_the_rest()

    def _decide_grammar(self, worker: PluginRow) -> None:
        chosen, reason = select_grammar(self.selector, self.args, worker, self._hardware_problems)
        if chosen is not None:
            self._add("grammar", chosen)
        if reason is not None:
            self.completion.fill(KINDS["grammar"].field, NONE if chosen is None else chosen.row.name, reason)

    def _decide_uses(self, kind: str, uses: Sequence[PluginUse]) -> None:
        field = KINDS[kind].field
        for use in uses:
            choice = Selector(self.catalogue, Access(deny=self.args.plugin_deny), self.provenance).named(
                kind, use.plugin, field, self._hardware_problems
            )
            if use not in self.args.uses(kind):
                choice = Choice(choice.row, OWN)
            self._add(kind, choice, instance=use.instance)
        flag = KINDS[kind].flag
        self.selector.set_aside(kind, f"not named by {flag}", [use.plugin for use in uses])

    def _check_processors(self, worker: PluginRow) -> None:
        kind = KINDS["logits_processor"]
        if self.args.uses(kind.name) and kind.field not in manifest_of(worker).features:
            raise ConfigurationError(
                f"{self.selector.source(kind.field)}: worker {worker.name!r} runs no logits processors: it does not declare "
                f"{kind.field!r}"
            )

    def _decide(self, kind: str, judge: Any) -> Choice:
        """A kind whose one plugin stands in one field."""
        field = KINDS[kind].field
        name = self.args.plugin_for(kind)
        choice = self.selector.choose(kind, name, field, judge)
        self._add(kind, choice)
        if name is None:
            self.completion.fill(field, choice.row.name, choice.reason)
        return choice

    def _add(self, kind: str, choice: Choice, *, instance: str | None = None, phases: tuple[str, ...] = ()) -> None:
        row = choice.row
        instance = instance or row.name
        options = self.args.options_for(kind, instance)
        key = instance_key(kind, instance)
        self.plugins.append(
            as_selected(
                row,
                choice.reason,
                instance=instance,
                options=options,
                option_folders=option_folders(self.provenance, key),
                option_sources=option_sources(self.provenance, key),
                phases=phases,
            )
        )
        if kind == "worker" and self.args.worker is None:
            self.completion.fill("worker", row.name, choice.reason)

    def _hardware_problems(self, row: PluginRow) -> list[str]:
        return device_problems(row, self.device.type, self.device.reason) + dtype_problems(row, self.dtype)

    def _is_named(self, row: PluginRow) -> bool:
        parts = KINDS[row.kind].parts or (None,)
        return row.name in {self.args.plugin_for(row.kind, part) for part in parts}

    def _need(self) -> Need:
        shape = None if self.model is None else self.model.shape
        return Need(
            device=self.device.type,
            dtype=self.dtype,
            architecture=None if shape is None else shape.architecture,
            head_sizes=() if shape is None else shape.head_sizes,
            page_size=self.args.page_size,
        )

    def _leave_out(self, kind: str, worker: PluginRow, fields: tuple[str, ...]) -> None:
        """This worker uses no plugin of the kind, so naming one would be without effect."""
        reason = f"worker {worker.name!r} uses no {kind} plugin"
        for field in fields:
            if getattr(self.args, field) is not None:
                raise ConfigurationError(
                    f"{self.selector.source(field)} names {getattr(self.args, field)!r}, but {reason}: leave it out, or "
                    "name another --worker"
                )
        self.selector.set_aside(kind, reason)

    def _leave_open(self, kind: str, what: str) -> None:
        self.undecided.add(kind)
        self.notes.append(f"the model is not here yet, so it is open {what}")
        self.selector.set_aside(kind, f"open: the model is not here yet, and decides {what}")

    def _check_graphs(self, rows: list[PluginRow]) -> None:
        pooling = None if self.model is None else self.model.pooling
        refuse_unused_sizes(self.args, self.device, pooling, rows, self.selector.source)

    def _check_options(self) -> None:
        """Options for an instance that is not in the stack would be without effect."""
        keys = [plugin.key for plugin in self.plugins]
        for key in self.args.options:
            kind, _, instance = key.partition(".")
            if key in keys or (kind in self.undecided and self.catalogue.find(kind, instance)):
                continue
            sources = {source for name, source in self.provenance.items() if name.startswith(f"options.{key}.")}
            origin = f" (from {', '.join(sorted(sources))})" if sources else ""
            same_kind = [other for other in keys if other.partition(".")[0] == kind]
            if self.catalogue.find(kind, instance):
                why = f"{kind} {instance!r} is installed but not part of this stack"
                meant = f"; this stack has {', '.join(same_kind)}" if same_kind else ""
            else:
                why = "there is no such instance in this stack"
                meant = did_you_mean(key, same_kind or keys, noun="in this stack")
            raise ConfigurationError(f'options."{key}"{origin}: {why}{meant}')

    def _rejected(self) -> tuple[Rejected, ...]:
        """Without repeats, and without those that another phase or use did choose."""
        self.selector.set_aside_what_has_no_kind()
        chosen = {instance_key(plugin.kind, plugin.name) for plugin in self.plugins}
        seen = dict.fromkeys(self.selector.rejected)
        return tuple(item for item in seen if instance_key(item.kind, item.name) not in chosen)
