"""Log-probabilities without a model: numbers that depend on the prefix and the token alone, so that a lost, repeated or
misplaced entry shows. They are a distribution: after any prefix the token that came has more than half of it, and each id
above it, modulo the vocabulary, has a little less of what is left than the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Logprobs, LogprobSpec, ModelWorkerBatch, RowOpen
from jackfield_worker_simulated.hashing import U64, mix
from jackfield_worker_simulated.rows import OpenRows

_STEP = 1 / 64


def chosen_values(before: U64) -> NDArray[np.float32]:
    """float32 [n]: the value of the token that came after the prefix with each hash; its probability is above 0.59."""
    fractions = (mix(before) % np.uint64(1024)).astype(np.float32) / np.float32(2048)
    return -(fractions + np.float32(_STEP))


def values_of(
    chosen: NDArray[np.float32], token: NDArray[np.int32], ids: NDArray[np.int32], vocab: int
) -> NDArray[np.float32]:
    """float32 [n, k]: the values of ids [n, k] where `token` [n] came with the value `chosen` [n]."""
    distance = (ids - token[:, None]) % vocab
    left = np.log(-np.expm1(chosen.astype(np.float64)))[:, None]
    # the others' weights are exp(-_STEP * distance), distance 1 .. vocab - 1; this is the logarithm of their sum
    weight = np.log(-np.expm1(-_STEP * max(1, vocab - 1))) - np.log(np.expm1(_STEP))
    values: NDArray[np.float32] = np.where(distance == 0, chosen[:, None], left - distance * _STEP - weight).astype(
        np.float32
    )
    return values


@dataclass(frozen=True, slots=True)
class _Row:
    """One wanting row of a step. before: hashes [p] of what stands before each prompt token with an entry; tokens [p]."""

    index: int
    spec: LogprobSpec
    before: U64
    tokens: NDArray[np.int32]
    sampled: U64 | None


class StepEntries:
    """The wanting rows of one launch. Taken at the launch: later ones may close a row and open it for another request."""

    def __init__(self, n: int, vocab: int, rows: list[_Row]) -> None:
        self._n, self._vocab, self._rows = n, vocab, rows

    def result(self, tokens: NDArray[np.int32], starts: NDArray[np.int32]) -> Logprobs:
        """tokens, starts: as in `WorkerResult`."""
        top = max(row.spec.top for row in self._rows)
        counts = np.zeros(self._n, dtype=np.int32)
        prompt = np.zeros(self._n, dtype=np.int32)
        chosen, top_ids, top_values, ids_values, ids_counts = [], [], [], [], []
        for row in self._rows:
            mine = row.tokens
            before = row.before
            if row.sampled is not None:
                mine = np.concatenate([mine, tokens[starts[row.index] : starts[row.index + 1]]])
                before = np.concatenate([before, row.sampled])
            counts[row.index], prompt[row.index] = len(mine), len(row.tokens)
            values = chosen_values(before)
            likeliest = ((mine[:, None] + np.arange(top)) % self._vocab).astype(np.int32)
            chosen.append(values)
            top_ids.append(likeliest)
            top_values.append(values_of(values, mine, likeliest, self._vocab))
            others = np.broadcast_to(row.spec.ids, (len(mine), len(row.spec.ids)))
            ids_values.append(values_of(values, mine, others, self._vocab).ravel())
            ids_counts.append(np.full(len(mine), len(row.spec.ids), dtype=np.int32))
        return Logprobs(
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            prompt=prompt,
            chosen=np.concatenate(chosen),
            top_values=np.concatenate(top_values),
            top_ids=np.concatenate(top_ids),
            ids_values=np.concatenate(ids_values),
            ids_starts=np.concatenate([[0], np.cumsum(np.concatenate(ids_counts))]).astype(np.int32),
        )


class LogprobRows:
    """Which open rows want entries."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._specs: dict[int, LogprobSpec] = {}

    def apply(self, closed: NDArray[np.int32], opened: tuple[RowOpen, ...]) -> None:
        if self._specs:
            for row in closed.tolist():
                self._specs.pop(row, None)
        for one in opened:
            if one.logprobs is not None:
                self._specs[one.row] = one.logprobs

    def step(self, batch: ModelWorkerBatch, start: NDArray[np.int32], rows: OpenRows) -> StepEntries | None:
        """start: tokens computed before [n]. None: nobody of the batch wants any."""
        if not self._specs:
            return None
        found = []
        for i, row in enumerate(batch.rows.tolist()):
            spec = self._specs.get(row)
            if spec is None:
                continue
            end = int(start[i] + batch.new_tokens[i])
            first = max(spec.prompt_start, int(start[i]) + 1)
            last = max(first, min(spec.prompt_end, end + 1))
            found.append(
                _Row(
                    index=i,
                    spec=spec,
                    before=rows.prefix[row, first:last].copy(),
                    tokens=rows.tokens[row, first:last].copy(),
                    sampled=rows.prefix[row, end : end + 1].copy() if batch.sample[i] else None,
                )
            )
        return StepEntries(len(batch.rows), self._vocab, found) if found else None
