"""The table of kinds: every seam of the runtime that plugins fill. Nothing else repeats this list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from dataclasses import field as field_
from types import MappingProxyType

ENTRY_POINT_PREFIX = "jackfield."


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One seam.

    name        as in manifests, `[options."<kind>.<instance>"]` and entry-point groups (`jackfield.<name>`)
    group       the folder under `plugins/` in which distributions of this kind live
    contract    (major, minor) of the contract that this core speaks; 0.x is provisional
    hook        the one hook that a plugin of this kind implements: it is handed a context and gives the plugin's object
    exclusive   exactly one plugin serves (True), or any number (False)
    field       the ServerArgs field that names the plugin; its flag is the same word with dashes
    optional    a run may do without: the field then says "none"
    parts       parts of the work that different plugins may do -> the ServerArgs field that names the part's own
    processes   the process roles that load such a plugin unless its manifest says otherwise
    """

    name: str
    group: str
    contract: tuple[int, int]
    hook: str
    exclusive: bool
    field: str
    processes: tuple[str, ...]
    summary: str
    optional: bool = False
    parts: Mapping[str, str] = field_(default_factory=dict)

    @property
    def has_common_field(self) -> bool:
        """Whether `field` speaks for all parts, and not for one of them alone."""
        return self.field not in self.parts.values()

    @property
    def fields(self) -> tuple[str, ...]:
        """All ServerArgs fields that name plugins of the kind, the common one first."""
        return tuple(dict.fromkeys((self.field, *self.parts.values())))

    @property
    def entry_point_group(self) -> str:
        return ENTRY_POINT_PREFIX + self.name

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")

    def flag_of(self, features: Collection[str]) -> str:
        """The flag that names a plugin with these features: where no field speaks for all parts, that of its part."""
        field = self.field
        if not self.has_common_field:
            field = next((self.parts[part] for part in self.parts if part in features), field)
        return "--" + field.replace("_", "-")

    @property
    def contract_version(self) -> str:
        return f"{self.contract[0]}.{self.contract[1]}"


_ALL = (
    Kind(
        name="attention",
        group="attention",
        contract=(1, 1),
        hook="jackfield_attention_backend",
        exclusive=True,
        field="attention_backend",
        processes=("scheduler",),
        parts=MappingProxyType({"prefill": "prefill_attention_backend", "decode": "decode_attention_backend"}),
        summary="Computes attention over the paged KV cache; prefill and decode may be served by two plugins.",
    ),
    Kind(
        name="cache",
        group="cache",
        contract=(0, 1),
        hook="jackfield_prefix_cache",
        exclusive=True,
        field="cache_policy",
        processes=("scheduler",),
        summary="Remembers the KV slots of finished prefixes so that later requests reuse them.",
    ),
    Kind(
        name="kv_tier",
        group="cache",
        contract=(0, 1),
        hook="jackfield_kv_tier",
        exclusive=False,
        field="kv_tier",
        processes=("scheduler",),
        summary="Keeps KV outside the worker's memory, behind the prefix cache: in host memory, on disk.",
    ),
    Kind(
        name="schedule_policy",
        group="scheduler",
        contract=(1, 0),
        hook="jackfield_schedule_policy",
        exclusive=True,
        field="schedule_policy",
        processes=("scheduler",),
        summary="Decides who runs next, with how many tokens, and whom to retract.",
    ),
    Kind(
        name="event_loop",
        group="scheduler",
        contract=(0, 1),
        hook="jackfield_event_loop",
        exclusive=True,
        field="event_loop",
        processes=("scheduler",),
        summary="Drives the scheduler's phases: how many steps are in flight, and in which order they end.",
    ),
    Kind(
        name="gate",
        group="scheduler",
        contract=(0, 1),
        hook="jackfield_gate",
        exclusive=False,
        field="gate",
        processes=("scheduler",),
        summary="Holds new requests back until something that they need is there.",
    ),
    Kind(
        name="grammar",
        group="grammar",
        contract=(0, 1),
        hook="jackfield_grammar_backend",
        exclusive=True,
        field="grammar_backend",
        processes=("main", "scheduler"),
        summary="Compiles what an answer has to keep to (a JSON schema, a pattern, a grammar) and says which tokens may come.",
        optional=True,
    ),
    Kind(
        name="model",
        group="models",
        contract=(1, 3),
        hook="jackfield_models",
        exclusive=True,
        field="model_impl",
        processes=("scheduler",),
        summary="Maps Hugging Face architecture names to model code.",
    ),
    Kind(
        name="loader",
        group="models",
        contract=(0, 1),
        hook="jackfield_model_source",
        exclusive=True,
        field="load_format",
        processes=("main", "scheduler", "detokenizer"),
        summary="Reads a checkpoint format: config, tokenizer files and weights.",
    ),
    Kind(
        name="worker",
        group="worker",
        contract=(0, 4),
        hook="jackfield_model_worker",
        exclusive=True,
        field="worker",
        processes=("scheduler",),
        summary="Runs a batch: on a real model, or on a cost model.",
    ),
    Kind(
        name="ops",
        group="ops",
        contract=(0, 5),
        hook="jackfield_ops",
        exclusive=True,
        field="ops",
        processes=("scheduler",),
        summary="Fused operators: norm, linear, the blocks round attention, sampling.",
    ),
    Kind(
        name="logits_processor",
        group="sampling",
        contract=(0, 1),
        hook="jackfield_logits_processor",
        exclusive=False,
        field="logits_processors",
        processes=("main", "scheduler"),
        summary="Changes logits before the draw, for the requests that ask for it by name.",
    ),
    Kind(
        name="routes",
        group="routes",
        contract=(0, 1),
        hook="jackfield_routes",
        exclusive=False,
        field="routes",
        processes=("main",),
        summary="HTTP routes of a further protocol, on the same runtime.",
    ),
    Kind(
        name="parser",
        group="parser",
        contract=(0, 1),
        hook="jackfield_parser",
        exclusive=True,
        field="tool_call_parser",
        processes=("main",),
        optional=True,
        parts=MappingProxyType({"tool_calls": "tool_call_parser", "reasoning": "reasoning_parser"}),
        summary="Finds the tool calls, or the reasoning, in the text that a model writes.",
    ),
    Kind(
        name="metrics",
        group="observability",
        contract=(1, 0),
        hook="jackfield_metrics_sink",
        exclusive=False,
        field="metrics",
        processes=("main",),
        summary="Receives metric samples.",
    ),
    Kind(
        name="observer",
        group="observability",
        contract=(1, 0),
        hook="jackfield_observer",
        exclusive=False,
        field="observer",
        processes=("main", "scheduler", "detokenizer"),
        summary="Watches the lifecycle hooks; changes nothing.",
    ),
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in _ALL})
