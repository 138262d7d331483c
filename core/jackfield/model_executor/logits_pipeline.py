"""Everything between the model's logits and the draw: which rows ask for what, in which order it is applied, and what becomes
of a processor that fails.

The order is SGLang's: end tokens that must not come yet, frequency and presence, repetition, logit bias, then the run's
processors in the stack's order, which so have the last word. Nothing is done, and nothing copied, in a step whose rows ask
for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import LogitsProcessor, LogitsRow, ProcessorSource, RowOpen
from jackfield.layers.logit_bias import LogitBias, MinNewTokens
from jackfield.layers.penalties import AdditivePenalties, RepetitionPenalty
from jackfield.layers.to_device import to_device

Wanted = Callable[[RowOpen], Any]
"""The parameters with which a row asks for a processor; None: it does not ask."""


class _Stage:
    """One processor and the rows that ask for it. source: None for one of the core's own, whose errors are the core's."""

    def __init__(
        self, processor: LogitsProcessor, wanted: Wanted, max_rows: int, source: ProcessorSource | None = None
    ) -> None:
        self.processor = processor
        self.wanted = wanted
        self.source = source
        self.asks: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.count = 0

    def of(self, rows: NDArray[np.int32], live: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Indices of those that ask."""
        return np.flatnonzero(self.asks[rows] & live)


@dataclass(frozen=True)
class LateCheck:
    """What is known of a plugin's logits only when the device is there.

    broken   bool [k] on the device: the rows that nothing could be drawn from any more; they have what they had before
    at       int64 [k]: which of the rows that are sampled these are
    blame    books the plugin's fault, and says why such a row's request must end
    """

    broken: torch.Tensor
    at: NDArray[np.intp]
    blame: Callable[[], str]


class LogitsPipeline:
    """failed   row -> why its request must end; it stays until the row is closed
    asked    how many things open rows ask for; with 0, `apply` and `tokens` do nothing
    """

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        device: str,
        sources: Sequence[ProcessorSource] = (),
        *,
        looks_late: bool = False,
        **context: Any,
    ) -> None:
        """looks_late: what plugins leave in the logits is looked at with the result (`late_checks`), because a look would wait
        for the device; context: further fields of `LogitsProcessorContext`. Raises what making a processor raises."""
        self.failed: dict[int, str] = {}
        self.asked = 0
        self._looks_late = looks_late
        self._late: list[LateCheck] = []
        self._device = device
        self._vocab_size = vocab_size
        additive = AdditivePenalties(max_rows, vocab_size, device)
        repetition = RepetitionPenalty(max_rows, vocab_size, device)
        self._stages = [
            _Stage(MinNewTokens(max_rows, device), MinNewTokens.wanted, max_rows),
            _Stage(additive, AdditivePenalties.wanted, max_rows),
            _Stage(repetition, RepetitionPenalty.wanted, max_rows),
            _Stage(LogitBias(device), LogitBias.wanted, max_rows),
        ]
        self._known = {source.instance for source in sources}
        for source in sources:
            made = source.make({"device": device, "vocab_size": vocab_size, "max_rows": max_rows, **context})
            self._stages.append(_Stage(made, _asking(source), max_rows, source))

    def check(self, opened: Sequence[RowOpen]) -> None:
        """Raises ValueError for a row that asks for a processor which is not part of this run; changes nothing."""
        for row in opened:
            for name in row.processors:
                if name not in self._known:
                    raise ValueError(
                        f"row {row.row} asks for the logits processor {name!r}, which this run does not have"
                    )

    def open(self, opened: Sequence[RowOpen]) -> None:
        """Rows begin, each with its history."""
        if not opened:
            return
        for stage in self._stages:
            rows = []
            for row in opened:
                params = stage.wanted(row) if stage.source is None else self._params(stage, row)
                if params is not None:
                    params = None if params is _NO_PARAMETERS else params
                    rows.append(
                        LogitsRow(row=row.row, uid=row.uid, params=params, history=row.history, outputs=row.outputs)
                    )
            if rows and self._guarded(stage, [row.row for row in rows], partial(stage.processor.opened, rows)):
                stage.asks[[row.row for row in rows]] = True
                stage.count += len(rows)
                self.asked += len(rows)

    def close(self, rows: NDArray[np.int32]) -> None:
        """Rows end."""
        if not rows.size:
            return
        for stage in self._stages:
            if stage.count and len(mine := rows[stage.asks[rows]]):
                stage.asks[mine] = False
                stage.count -= len(mine)
                self.asked -= len(mine)
                self._guarded(stage, [], partial(stage.processor.closed, mine))
        for row in rows.tolist():
            self.failed.pop(row, None)

    def apply(
        self,
        logits: torch.Tensor,
        rows: NDArray[np.int32],
        positions: NDArray[np.int64],
        live: NDArray[np.bool_],
    ) -> None:
        """Change float32 [n, vocab] of rows int32 [n] in place to what is drawn from. live bool [n]: rows that still belong to
        the request for which they were computed."""
        self._late = []
        if not self.asked:
            return
        for stage in self._stages:
            if not stage.count:
                continue
            live = live & self._good(rows)
            at = stage.of(rows, live)
            if not len(at):
                continue
            if stage.source is None and len(at) == len(rows):
                stage.processor.apply(logits, rows, positions)
                continue
            index = to_device(at, self._device)
            part = logits[index]  # a copy: what fails by half is forgotten
            if stage.source is None:
                stage.processor.apply(part, rows[at], positions[at])
            elif not self._custom(stage, part, logits, index, at, rows[at], positions[at]):
                continue
            logits[index] = part

    def late_checks(self) -> list[LateCheck]:
        """Those of the last `apply`, given once."""
        late, self._late = self._late, []
        return late

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        """What was drawn for live rows: int32 [k], and int64 [k] on the device. A row may come several times."""
        if not self.asked:
            return
        for stage in self._stages:
            if stage.count and len(at := stage.of(rows, self._good(rows))):
                whole = stage.source is None and len(at) == len(rows)
                # A plugin gets a copy: what was drawn is not its to change.
                mine = ids if whole else ids[to_device(at, self._device)]
                self._guarded(stage, rows[at].tolist(), partial(stage.processor.tokens, rows[at], mine))

    def _good(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        if not self.failed:
            return np.ones(len(rows), dtype=np.bool_)
        return ~np.isin(rows, list(self.failed))

    def _params(self, stage: _Stage, row: RowOpen) -> Any:
        made: list[Any] = []
        self._guarded(stage, [row.row], lambda: made.append(stage.wanted(row)))
        return made[0] if made else None

    def _custom(
        self,
        stage: _Stage,
        part: torch.Tensor,
        logits: torch.Tensor,
        index: torch.Tensor,
        at: NDArray[np.intp],
        rows: NDArray[np.int32],
        positions: NDArray[np.int64],
    ) -> bool:
        """Let a plugin change `part`, a copy of the lines `at` (`index` on the device); False if nothing of it may be used."""

        def call() -> None:
            returned: Any = stage.processor.apply(part, rows, positions)
            if returned is not None and returned is not part:
                raise TypeError(f"apply returned {type(returned).__name__}; it must change the logits in place")
            if part.shape != (len(rows), self._vocab_size) or part.dtype != torch.float32:
                raise TypeError(f"apply left logits of {part.dtype} {tuple(part.shape)}")

        if not self._guarded(stage, rows.tolist(), call):
            return False
        # Only what was good before is this plugin's doing; a model's own NaN ends its request elsewhere.
        broken = ~torch.isfinite(part.amax(dim=-1))
        if self._looks_late:
            before = logits[index]
            broken &= torch.isfinite(before.amax(dim=-1))
            part.copy_(torch.where(broken[:, None], before, part))
            self._late.append(LateCheck(broken, at, partial(self._blame, stage, ValueError(_BROKEN))))
        elif bool(broken.any()):
            broken &= torch.isfinite(logits[index].amax(dim=-1))
            bad = rows[broken.numpy()].tolist()
            if bad:
                self._fail(stage, bad, ValueError(_BROKEN))
        return True

    def _guarded(self, stage: _Stage, rows: Sequence[int], call: Callable[[], object]) -> bool:
        """Whether a call went well. A plugin's exception ends the requests of `rows`."""
        if stage.source is None:
            call()
            return True
        try:
            call()
        except Exception as error:
            self._fail(stage, rows, error)
            return False
        return True

    def _fail(self, stage: _Stage, rows: Sequence[int], error: Exception) -> None:
        why = self._blame(stage, error)
        for row in rows:
            self.failed.setdefault(row, why)

    @staticmethod
    def _blame(stage: _Stage, error: Exception) -> str:
        """Any thread. Raises what `ProcessorSource.fault` raises."""
        assert stage.source is not None
        stage.source.fault(error)
        return f"the logits processor {stage.source.instance!r} failed: {type(error).__name__}: {error}"


_BROKEN = "apply left a NaN or an infinity, or allowed no token at all"

_NO_PARAMETERS = object()
"""Stands for the parameters of a processor that takes none, since None says that it was not asked for."""


def _asking(source: ProcessorSource) -> Wanted:
    def wanted(opened: RowOpen) -> Any:
        if source.instance not in opened.processors:
            return None
        params = source.parameters(opened.processors[source.instance])
        return _NO_PARAMETERS if params is None else params

    return wanted
