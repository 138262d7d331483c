"""A worker whose log-probabilities are functions of the sequence alone: a lost, repeated or misplaced entry shows. Knows no
torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jackfield.hookspecs import Launched, Logprobs, PendingResult, WorkerResult
from jackfield.testing.scheduler_fakes import FakeLaunched, extend_hash
from jackfield.testing.scheduler_wide import WideWorker

Entry = tuple[float, list[tuple[float, int]], list[float]]
"""value of the token, (value, id) of the likeliest, values of the chosen ids"""


def expected_entry(before: int, token: int, top: int, ids: Sequence[int], vocab_size: int) -> Entry:
    """What `LogprobWorker` says of `token` after the prefix whose hash is `before`."""
    likeliest = [(_value(before, rank), (before + rank) % vocab_size) for rank in range(top)]
    return _value(before, token), likeliest, [_value(before, other) for other in ids]


def _value(before: int, token: int) -> float:
    return float(np.float32(-((before + 31 * token) % 4093) / 64))


class _Pending:
    def __init__(self, inner: PendingResult, launched: FakeLaunched, worker: LogprobWorker) -> None:
        self._inner = inner
        self._launched = launched
        self._worker = worker
        self._result: WorkerResult | None = None
        # Taken now: later steps change what the rows hold.
        self._histories = [[*holder.opened.history.tolist(), *holder.sampled] for holder in launched.holders]

    def ready(self) -> bool:
        return self._inner.ready()

    def result(self, timeout: float | None = None) -> WorkerResult:
        if self._result is None:
            plain = self._inner.result(timeout)
            self._result = WorkerResult(
                tokens=plain.tokens, starts=plain.starts, errors=plain.errors, logprobs=self._entries(plain)
            )
        return self._result

    def _entries(self, plain: WorkerResult) -> Logprobs | None:
        batch, vocab = self._launched.batch, self._worker.limits.vocab_size
        specs = [holder.opened.logprobs for holder in self._launched.holders]
        if all(spec is None for spec in specs):
            return None
        widest = max(spec.top for spec in specs if spec is not None)
        starts, prompts = [0], []
        entries: list[Entry] = []
        for i, (spec, history) in enumerate(zip(specs, self._histories, strict=True)):
            given = int(plain.starts[i + 1] - plain.starts[i])
            prompt = range(0)
            if spec is not None and i not in plain.errors:
                computed = int(batch.computed[i])
                prompt = range(
                    max(spec.prompt_start, computed + 1),
                    min(spec.prompt_end, computed + int(batch.new_tokens[i]) + 1),
                )
                for position in [*prompt, *range(len(history) - given, len(history))]:
                    state = 0
                    for token in history[:position]:
                        state = extend_hash(state, token)
                    entries.append(expected_entry(state, history[position], spec.top, spec.ids.tolist(), vocab))
            prompts.append(len(prompt))
            starts.append(len(entries))
        top_values = np.full((len(entries), widest), -np.inf, dtype=np.float32)
        top_ids = np.zeros((len(entries), widest), dtype=np.int32)
        for row, (_, likeliest, _) in enumerate(entries):
            for rank, (value, token) in enumerate(likeliest):
                top_values[row, rank], top_ids[row, rank] = value, token
        return Logprobs(
            starts=np.array(starts, dtype=np.int32),
            prompt=np.array(prompts, dtype=np.int32),
            chosen=np.array([entry[0] for entry in entries], dtype=np.float32),
            top_values=top_values,
            top_ids=top_ids,
            ids_values=np.array([value for entry in entries for value in entry[2]], dtype=np.float32),
            ids_starts=np.cumsum([0, *(len(entry[2]) for entry in entries)]).astype(np.int32),
        )


class LogprobWorker(WideWorker):
    """As `WideWorker`, with entries for the rows that want them."""

    def sample(self, launched: Launched, masks: Any = None) -> PendingResult:
        assert isinstance(launched, FakeLaunched)
        return _Pending(super().sample(launched, masks), launched, self)
