"""Which attention plugin serves prefill and which decode, and the KV layouts on which the two agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jackfield.config.device import DeviceDescription
from jackfield.config.dtype import resolve_kv_dtype
from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import KVLayout, ModelShape, Need
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow
from jackfield.stack.discovery.claims import kv_feature
from jackfield.stack.resolved import PHASES
from jackfield.stack.selection.checks import device_problems, dtype_problems, feature_problems, manifest_of
from jackfield.stack.selection.choice import Choice, Selector
from jackfield.stack.selection.invariance import FLAG, Invariance
from jackfield.stack.selection.layouts import known_layouts
from jackfield.stack.selection.probes import Prober, with_the_probes


@dataclass(frozen=True)
class AttentionChoice:
    """choices: phase -> choice (one and the same for both if one plugin serves both); layouts: what all accept, in order."""

    choices: Mapping[str, Choice]
    layouts: tuple[str, ...]
    known: Mapping[str, KVLayout]


class AttentionSelection:
    """Judges attention plugins for one run. Probes are asked once a plugin and layout.

    refused_prober   asked about those that their manifests rule out, for what else there is to say
    """

    def __init__(
        self,
        args: ServerArgs,
        device: DeviceDescription,
        dtype: str | None,
        shape: ModelShape | None,
        catalogue: Catalogue,
        prober: Prober,
        refused_prober: Prober,
    ) -> None:
        kv_dtype = resolve_kv_dtype(args.kv_cache_dtype, dtype)
        self._kv = frozenset() if kv_dtype is None else frozenset({kv_feature(kv_dtype)})
        self._args = args
        self._device = device
        self._dtype = dtype
        self._shape = shape
        self._prober = prober
        self._refused_prober = refused_prober
        self._known = known_layouts(catalogue)
        self._invariance = Invariance(args.enable_deterministic_inference, device.type, dtype, catalogue)
        self._judged: dict[tuple[str, str], tuple[tuple[str, ...], list[str]]] = {}

    def choose(self, selector: Selector) -> AttentionChoice:
        """Raises ConfigurationError."""
        args = self._args
        names = {phase: args.plugin_for("attention", phase) for phase in PHASES}
        if names["prefill"] == names["decode"]:
            choice = selector.choose("attention", names["prefill"], _field(args, "prefill"), self._problems)
            choices = dict.fromkeys(PHASES, choice)
            return AttentionChoice(choices, self._layouts(choice.row), self._known)
        # The named phase first: the other must fit it.
        first, second = sorted(PHASES, key=lambda phase: names[phase] is None)
        one = selector.choose("attention", names[first], _field(args, first), self._problems)

        def fits(row: PluginRow) -> list[str]:
            problems = self._problems(row)
            if not problems and not set(self._layouts(row)) & set(self._layouts(one.row)):
                return [
                    f"it accepts the KV layouts {', '.join(self._layouts(row))}, and {one.row.name!r}, which serves {first}, "
                    f"accepts {', '.join(self._layouts(one.row))}"
                ]
            return problems

        other = selector.choose("attention", names[second], _field(args, second), fits)
        if args.enable_deterministic_inference and other.row is not one.row:
            raise ConfigurationError(
                f"{selector.source(_field(args, first))}: {FLAG} computes a token's attention in one way, whether it stands in "
                f"a prompt or is generated, so one plugin must serve both phases; here {one.row.name!r} serves {first} and "
                f"{other.row.name!r} {second}"
            )
        common = tuple(name for name in self._layouts(one.row) if name in self._layouts(other.row))
        return AttentionChoice({first: one, second: other}, common, self._known)

    def _problems(self, row: PluginRow) -> list[str]:
        return self._judge(row)[1]

    def _layouts(self, row: PluginRow) -> tuple[str, ...]:
        return self._judge(row)[0]

    def _judge(self, row: PluginRow) -> tuple[tuple[str, ...], list[str]]:
        """Layouts in which this plugin can serve, and why it cannot at all."""
        key = (row.distribution, row.name)
        if key not in self._judged:
            self._judged[key] = self._judge_afresh(row)
        return self._judged[key]

    def _judge_afresh(self, row: PluginRow) -> tuple[tuple[str, ...], list[str]]:
        manifest = manifest_of(row)
        problems = device_problems(row, self._device.type, self._device.reason) + dtype_problems(row, self._dtype)
        problems += self._invariance.problems(row)
        if self._shape is not None:
            problems += feature_problems(row, self._shape.features, f"the model {self._shape.architecture}")
        problems += feature_problems(row, self._kv, f"--kv-cache-dtype {self._args.kv_cache_dtype}")
        layouts = tuple(
            name for name in manifest.layouts if name in self._known
        )  # in its own order: what it likes best is first
        if not layouts:
            hint = did_you_mean(manifest.layouts[0], self._known, noun="declared") if len(manifest.layouts) == 1 else ""
            problems.append(f"it accepts only KV layouts that nobody declares: {', '.join(manifest.layouts)}{hint}")
        if problems:
            need = replace(self._need(), layout=layouts[0] if layouts else None)
            return (), with_the_probes(problems, self._refused_prober, row, need, self._device)
        fitting: list[str] = []
        refused: list[str] = []
        for name in layouts:
            found = self._prober(row, replace(self._need(), layout=name), self._device)
            if found:
                refused.extend(problem for problem in found if problem not in refused)
            else:
                fitting.append(name)
        return tuple(fitting), [] if fitting else refused

    def _need(self) -> Need:
        shape = self._shape
        return Need(
            device=self._device.type,
            dtype=self._dtype,
            architecture=None if shape is None else shape.architecture,
            head_sizes=() if shape is None else shape.head_sizes,
            page_size=self._args.page_size,
            features=self._kv | (frozenset() if shape is None else shape.features),
        )


def _field(args: ServerArgs, phase: str) -> str:
    """The field that names the plugin of a phase."""
    own = f"{phase}_attention_backend"
    return own if getattr(args, own) is not None else "attention_backend"
