"""The worker: one dictionary from prompts to answers, and for each open row how much of its answer was given."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    PendingResult,
    WorkerContext,
    WorkerLimits,
    WorkerResult,
)
from replay_worker.options import ReplayOptions

Ids = tuple[int, ...]


@dataclass
class _Row:
    """answer: None where nothing was recorded; given: tokens of it so far"""

    answer: Ids | None
    given: int


class _Step(Launched):
    __slots__ = ("rows", "starts")

    def __init__(self, rows: dict[int, _Row], starts: NDArray[np.int32]) -> None:
        self.rows = rows  # by the place in the batch, those to sample for
        self.starts = starts


class _There:
    def __init__(self, result: WorkerResult) -> None:
        self._result = result

    def ready(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> WorkerResult:
        return self._result


class ReplayWorker(ModelWorker):
    def __init__(self, options: ReplayOptions, context: WorkerContext) -> None:
        wanted = context.max_total_tokens or 1 << 20
        self.limits = WorkerLimits(
            max_rows=context.max_running + 1,
            max_context=context.max_context,
            total_slots=max(1, wanted // context.page_size) * context.page_size,
            page_size=context.page_size,
            vocab_size=context.vocab_size,
            max_tokens=context.max_tokens,
        )
        self._answers = _recording(options, context.encode)
        self._otherwise = None if options.otherwise is None else tuple(options.otherwise)
        self._ends = context.eos_ids
        self._rows: dict[int, _Row] = {}

    def launch(self, batch: ModelWorkerBatch) -> Launched:
        for row in batch.closed.tolist():
            del self._rows[row]
        for opened in batch.opened:
            prompt = tuple(opened.history[: len(opened.history) - opened.outputs].tolist())
            self._rows[opened.row] = _Row(self._answers.get(prompt, self._otherwise), opened.outputs)
        rows = {i: self._rows[row] for i, row in enumerate(batch.rows.tolist()) if batch.sample[i]}
        return _Step(rows, np.concatenate([[0], np.cumsum(batch.sample)]).astype(np.int32))

    def sample(self, launched: Launched, masks: Any = None) -> PendingResult:
        if not isinstance(launched, _Step):
            raise TypeError("this step was not launched here")
        errors = {i: "nothing was recorded for this prompt" for i, row in launched.rows.items() if row.answer is None}
        tokens = np.array([self._next(row) for row in launched.rows.values()], dtype=np.int32)
        return _There(WorkerResult(tokens=tokens, starts=launched.starts, errors=errors))

    def close(self) -> None:
        self._rows.clear()

    def _next(self, row: _Row) -> int:
        """Behind the answer comes the model's end token; where it has none, the answer begins again."""
        if row.answer is None:
            return 0
        row.given += 1
        if row.given > len(row.answer) and self._ends:
            return self._ends[0]
        return row.answer[(row.given - 1) % len(row.answer)]


def _recording(options: ReplayOptions, encode: Callable[[str], list[int]] | None) -> dict[Ids, Ids]:
    """Raises ValueError, naming the line, for what cannot be replayed."""
    lines = [] if options.path is None else options.path.read_text(encoding="utf-8").splitlines()
    answers: dict[Ids, Ids] = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            answers[_ids(entry["prompt"], encode)] = _ids(entry["answer"], encode)
        except (ValueError, KeyError, TypeError) as error:
            where = f"{options.path}, line {number}"
            raise ValueError(f'{where}: not {{"prompt": ..., "answer": ...}} that can be replayed: {error}') from error
    return answers


def _ids(value: Any, encode: Callable[[str], list[int]] | None) -> Ids:
    if isinstance(value, str):
        if encode is None:
            raise ValueError("it holds a text, and this run has no tokenizer")
        value = encode(value)
    if not value or not all(type(token) is int for token in value):
        raise ValueError(f"{value!r} is neither a text nor a list of token ids, or it is empty")
    return tuple(value)
