"""A worker at the width of the contract: several tokens a step, sampling that must wait, results and copies that come late.

What pipeline stages, draft-and-verify decoding and prefill servers will ask of the scheduler, without any of them. Its
tokens are those of `FakeWorker`, and it is as strict. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from jackfield.hookspecs import (
    Launched,
    ModelWorkerBatch,
    PendingResult,
    RowOpen,
    TokenMasks,
    WorkerLimits,
    WorkerResult,
)
from jackfield.testing.scheduler_fakes import FakeLaunched, FakeWorker, _Row, extend_hash


class LatePending:
    """Not there the first `late` times somebody asks, nor while `blocked` says so; a caller that waits for ever gets it."""

    def __init__(self, inner: PendingResult, late: int, blocked: Callable[[], bool]) -> None:
        self._inner = inner
        self._late = late
        self._blocked = blocked

    def ready(self) -> bool:
        if self._late > 0 or self._blocked():
            self._late -= 1
            return False
        return True

    def result(self, timeout: float | None = None) -> WorkerResult:
        if timeout is not None and not self.ready():
            raise TimeoutError("the step has not ended")
        return self._inner.result()


class WideWorker(FakeWorker):
    """width       most tokens that a decoding row gives: 1 to width, by the sequence's hash
    deferred      steps are sampled after the earlier commits
    late          how often a result is asked for before it is there
    tickets       copies that have not ended: a step that waits for one has no result yet
    gave          how many tokens each sampled row gave, in order
    next_token    as `FakeWorker`'s
    """

    def __init__(
        self,
        limits: WorkerLimits,
        *,
        width: int = 3,
        deferred: bool = False,
        late: int = 0,
        next_token: Callable[[RowOpen, list[int], int], int] | None = None,
    ) -> None:
        super().__init__(replace(limits, max_tokens_per_row=width, deferred=deferred), next_token=next_token)
        self.tickets: set[int] = set()
        self.gave: list[int] = []
        self._late = late

    def sample(self, launched: Launched, masks: TokenMasks | None = None) -> PendingResult:
        assert isinstance(launched, FakeLaunched)
        waits = launched.batch.wait_for
        inner = super().sample(launched, masks)
        return LatePending(inner, self._late, lambda: not self.tickets.isdisjoint(waits))

    def _computed(self, batch: ModelWorkerBatch, i: int, holder: _Row) -> int:
        told = int(batch.computed[i])
        if not batch.relay[i]:
            return told
        mine = len(holder.opened.history) + len(holder.sampled) - 1
        assert mine == told if batch.exact else mine <= told, f"{told} tokens computed, the worker knows of {mine}"
        return mine

    def _draw(self, batch: ModelWorkerBatch, i: int, state: int, holder: _Row) -> list[int]:
        most = 1 if batch.most is None else int(batch.most[i])
        count = min(most, 1 + state // 7 % self.limits.max_tokens_per_row)
        row = int(batch.rows[i])
        tokens = super()._draw(batch, i, state, holder)
        while len(tokens) < count:
            # The KV of an accepted token is written in the step that accepts it.
            state = extend_hash(state, tokens[-1])
            position = len(holder.opened.history) + len(holder.sampled) - 1
            slot = int(self._table[row, position])
            assert slot >= self.limits.page_size, f"row {row} position {position} has no slot for an accepted token"
            self._kv[slot] = state
            tokens += super()._draw(batch, i, state, holder)
        self.gave.append(count)
        return tokens
