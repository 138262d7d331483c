"""`--quantization`: in which form the run's linear weights are multiplied, and which ops plugin can do that.

Three things play together: the argument, the packed encodings that the checkpoint holds (the entry `weight_encodings` of its
configuration, which the loader writes), and what an ops plugin declares (`encodings`, and features "quantization:<name>").
Opens and imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jackfield.config.errors import ConfigurationError, did_you_mean, either
from jackfield.config.names import AUTO, NONE
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.claims import QUANTIZATION, quantizations
from jackfield.stack.resolved import ModelFacts, WeightForm
from jackfield.stack.selection.checks import manifest_of

FLAG = "--quantization"
GGUF = "gguf"
W8A8_INT8 = "w8a8_int8"
"""The one quantisation that the contract of ops defines; plugins may declare others."""

PLAIN = "plain"
WEIGHT_ENCODINGS = "weight_encodings"
REFERENCE_DTYPE = "float32"
"""Whoever asks for it asks for the reference's numbers, which quantised products do not give."""


@dataclass(frozen=True, kw_only=True)
class QuantizationChoice:
    """What one run asks for.

    asked, source   the argument's value, and how messages call where it came from
    dtype           of the run; None: not known yet
    model           None: it is not here yet
    """

    asked: str
    source: str
    dtype: str | None
    model: ModelFacts | None
    catalogue: Catalogue

    def refuse_unknown(self) -> None:
        """Raises ConfigurationError for a name that nothing declares."""
        rows = [row for row in self.catalogue.rows("ops") if row.manifest is not None]
        declared = {name for row in rows for name in quantizations(manifest_of(row).features)}
        known = (AUTO, NONE, GGUF, *sorted({W8A8_INT8} | declared))
        if self.asked not in known:
            raise ConfigurationError(
                f"{self.source}: there is no quantisation {self.asked!r}{did_you_mean(self.asked, known)}"
            )

    def refuse_for_worker(self, worker: str) -> None:
        """For a worker that uses no ops plugin. Raises ConfigurationError if that leaves the argument without effect."""
        if self.asked not in (AUTO, NONE):
            raise ConfigurationError(
                f"{self.source} {self.asked}: worker {worker!r} uses no ops plugin, so it would be without effect: leave it out, "
                "or name another --worker"
            )

    def refuse_for_model(self) -> None:
        """Raises ConfigurationError for a checkpoint that has nothing to keep packed."""
        if self.asked == GGUF and self.model is not None and not self._packed:
            raise ConfigurationError(
                f"{self.source} {GGUF} keeps packed weights packed, and {self.model.config.source} has none: use {FLAG} {AUTO}, "
                "or a GGUF file with quantised weights"
            )

    def problems(self, row: PluginRow) -> list[str]:
        """Why this healthy ops plugin cannot serve, and which could."""
        if self.asked in (AUTO, NONE):
            return []
        if self.asked == GGUF:
            lacking = [name for name in self._packed if name not in manifest_of(row).encodings]
            if not lacking:
                return []
            takes = ", ".join(manifest_of(row).encodings) or PLAIN
            others = self._others(row, lambda other: set(self._packed) <= set(manifest_of(other).encodings))
            return [
                f"{self.source} {GGUF} asks for products with {' and '.join(lacking)}, and it takes {takes} only; {others}"
            ]
        if self._claims(row):
            return []
        feature = f"{QUANTIZATION}:{self.asked}"
        return [
            f"{self.source} {self.asked} needs {feature!r}, which it does not declare; {self._others(row, self._claims)}"
        ]

    def decide(self, ops: PluginRow) -> WeightForm:
        """The form with this ops plugin, for which there are no problems."""
        if self.model is None:
            return WeightForm(reason="open: the model is not here yet")
        if self.asked not in (AUTO, NONE, GGUF):
            decoded = f"; the checkpoint's {' and '.join(self._packed)} is decoded first" if self._packed else ""
            return WeightForm(quantization=self.asked, reason=f"{self.source}: ops {ops.name!r} quantises{decoded}")
        if not self._packed:
            return WeightForm(reason="the checkpoint's weights are plain")
        held = " and ".join(self._packed)
        if self.asked == NONE:
            return WeightForm(reason=f"{self.source} {NONE}: {held} is decoded to the run's dtype")
        if self.asked == AUTO and self.dtype == REFERENCE_DTYPE:
            return WeightForm(
                reason=f"{AUTO}: a run in {REFERENCE_DTYPE} asks for the reference's numbers, so {held} is decoded; "
                f"{FLAG} {GGUF} keeps it"
            )
        kept = tuple(name for name in self._packed if name in manifest_of(ops).encodings)
        lost = [name for name in self._packed if name not in kept]
        if not kept:
            return WeightForm(reason=f"ops {ops.name!r} takes plain weights only, so {held} is decoded")
        rest = f"; {' and '.join(lost)} is decoded" if lost else ""
        return WeightForm(
            packed=kept,
            strict=self.asked == GGUF,
            reason=f"ops {ops.name!r} multiplies {' and '.join(kept)} as it lies in the file{rest}",
        )

    @property
    def _packed(self) -> tuple[str, ...]:
        found = () if self.model is None else self.model.config.hf.get(WEIGHT_ENCODINGS) or ()
        return tuple(name for name in found if name != PLAIN)

    def _claims(self, row: PluginRow) -> bool:
        return self.asked in quantizations(manifest_of(row).features)

    def _others(self, row: PluginRow, able: Callable[[PluginRow], bool]) -> str:
        rows = [other for other in self.catalogue.rows("ops") if other.status is Status.OK and other is not row]
        names = [other.name for other in rows if other.manifest is not None and able(other)]
        return f"{either(names)} would do" if names else "no installed ops plugin would do"
