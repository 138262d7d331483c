"""A worker to test schedulers, policies, loops and caches with: slow, small, and strict.

`FakeWorker` keeps in every KV slot a hash of the whole prefix that the slot's token ends, and reads it back before it
samples. A wrong slot, a page freed too early, a row that was not rewritten or a token that came late is an AssertionError
here, and the tokens are a function of the request alone. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    PendingResult,
    RowOpen,
    TokenMasks,
    WorkerLimits,
    WorkerResult,
)

_PRIME = (1 << 61) - 1


def extend_hash(prefix: int, token: int) -> int:
    """The hash of a prefix and one more token; 0 is the empty prefix's."""
    return (prefix * 1_000_003 + token + 1) % _PRIME


def expected_tokens(prompt: Sequence[int], count: int, vocab_size: int) -> list[int]:
    """What a FakeWorker generates for a request, whatever runs beside it."""
    state = 0
    for token in prompt:
        state = extend_hash(state, token)
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(state % vocab_size)
        state = extend_hash(state, tokens[-1])
    return tokens


def masked_token(token: int, allowed: NDArray[np.bool_]) -> int:
    """What a FakeWorker draws in the place of a token that may not come."""
    choices = np.flatnonzero(allowed)
    return int(choices[token % len(choices)])


def pooled_values(state: int) -> NDArray[np.float32]:
    """What a FakeWorker gives of a prompt with this hash, float32 [2]."""
    return np.array([state % 1009, state % 2003], dtype=np.float32)


@dataclass
class _Row:
    opened: RowOpen
    newest: int | None = None
    refused: bool = False
    sampled: list[int] = field(default_factory=list)


class FakeLaunched(Launched):
    """The batch and, for each row, the hash of all its tokens so far."""

    __slots__ = ("batch", "holders", "sampled", "states")

    def __init__(self, batch: ModelWorkerBatch, states: list[int], holders: list[_Row]) -> None:
        self.batch = batch
        self.states = states
        self.holders = holders
        self.sampled = False


class FakePending:
    def __init__(self, result: WorkerResult) -> None:
        self._result = result

    def ready(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> WorkerResult:
        return self._result


class FakeWorker(ModelWorker):
    """batches: every batch launched, in order.

    next_token   (row's opening record, tokens it sampled before, hash of the sequence) -> token; default: from the hash
    failing      uids whose rows fail
    refusing     steps for which no forward is begun
    masks        of each step that came with some, in order
    """

    def __init__(
        self,
        limits: WorkerLimits,
        *,
        next_token: Callable[[RowOpen, list[int], int], int] | None = None,
    ) -> None:
        self.limits = limits
        self.batches: list[ModelWorkerBatch] = []
        self.failing: set[int] = set()
        self.refusing: set[int] = set()
        self.masks: list[TokenMasks] = []
        self.closed = False
        self._allowed: dict[int, NDArray[np.bool_]] = {}
        self._next_token = next_token
        self._table = np.zeros((limits.max_rows, limits.max_context), dtype=np.int32)
        self._kv: dict[int, int] = {}
        self._rows: dict[int, _Row] = {}

    def launch(self, batch: ModelWorkerBatch) -> FakeLaunched:
        self._check(batch)
        for row in batch.closed.tolist():
            del self._rows[row]
        for opened in batch.opened:
            assert opened.row not in self._rows, f"row {opened.row} is opened twice"
            self._rows[opened.row] = _Row(opened)
        self._write_table(batch)
        states, holders = [], []
        at = 0
        for i, row in enumerate(batch.rows.tolist()):
            holder = self._rows[row]
            count, computed = int(batch.new_tokens[i]), self._computed(batch, i, holder)
            tokens = batch.token_ids[at : at + count].tolist()
            at += count
            holder.refused |= batch.step in self.refusing or holder.opened.uid in self.failing
            if holder.refused:  # in this step, or in one before it that is still in flight
                states.append(0)
                holders.append(holder)
                continue
            if batch.relay[i]:
                assert holder.newest is not None, f"row {row} relays a token, but has sampled none"
                tokens[-1] = holder.newest
            states.append(self._compute(row, computed, tokens, holder))
            holders.append(holder)
        self.batches.append(batch)
        return FakeLaunched(batch, states, holders)

    def sample(self, launched: Launched, masks: TokenMasks | None = None) -> PendingResult:
        assert isinstance(launched, FakeLaunched)
        self._take_masks(launched.batch, masks)
        assert not launched.sampled, "a step is sampled twice"
        launched.sampled = True
        tokens, starts, errors = [], [0], {}
        if launched.batch.step in self.refusing:
            nothing = np.zeros(len(launched.holders) + 1, dtype=np.int32)
            return FakePending(WorkerResult(tokens=nothing[:0], starts=nothing, refused="no plan for this batch"))
        pool, pooled = launched.batch.pool, {}
        for i, (state, holder) in enumerate(zip(launched.states, launched.holders, strict=True)):
            if holder.opened.uid in self.failing:
                errors[i] = "made to fail"
            elif pool is not None and pool[i]:
                pooled[i] = pooled_values(state)
            elif launched.batch.sample[i]:
                tokens += self._draw(launched.batch, i, state, holder)
            starts.append(len(tokens))
        return FakePending(
            WorkerResult(
                tokens=np.array(tokens, dtype=np.int32),
                starts=np.array(starts, dtype=np.int32),
                errors=errors,
                pooled=pooled,
            )
        )

    def close(self) -> None:
        self.closed = True

    def _computed(self, batch: ModelWorkerBatch, i: int, holder: _Row) -> int:
        """Tokens of batch row i whose KV is there."""
        assert batch.exact, "an upper bound for a worker that gives one token a row"
        return int(batch.computed[i])

    def _draw(self, batch: ModelWorkerBatch, i: int, state: int, holder: _Row) -> list[int]:
        """The tokens that come of batch row i, whose sequence has the hash `state`."""
        token = state % self.limits.vocab_size
        if self._next_token is not None:
            token = self._next_token(holder.opened, holder.sampled, state)
        if (allowed := self._allowed.get(int(batch.rows[i]))) is not None and not allowed[token]:
            token = masked_token(token, allowed)
        holder.sampled.append(token)
        holder.newest = token
        return [token]

    def _take_masks(self, batch: ModelWorkerBatch, masks: TokenMasks | None) -> None:
        """Whose tokens are bound in this step."""
        self._allowed = {}
        if masks is None:
            return
        self.masks.append(masks)
        vocab = self.limits.vocab_size
        assert masks.bits.shape == (len(masks.rows), -(-vocab // 32)), masks.bits.shape
        assert masks.bits.dtype == np.uint32
        sampled = batch.rows[batch.sample].tolist()
        for row, bits in zip(masks.rows.tolist(), masks.bits, strict=True):
            assert row in sampled, f"a mask for row {row}, which is not sampled in step {batch.step}"
            assert row not in self._allowed, f"two masks for row {row}"
            assert batch.most is None or batch.most[batch.rows == row] == 1, "a masked row may give several tokens"
            allowed = np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)
            assert allowed[:vocab].any(), f"the mask of row {row} allows nothing"
            self._allowed[row] = allowed

    def _compute(self, row: int, computed: int, tokens: list[int], holder: _Row) -> int:
        """The hash of the row's tokens after these; checks what every earlier slot holds, and fills the new ones."""
        history = [*holder.opened.history.tolist(), *holder.sampled]
        end = computed + len(tokens)
        assert tokens == history[computed:end], f"row {row} got tokens {tokens} for {history[computed:end]}"
        state = 0
        for position in range(end):
            state = extend_hash(state, history[position])
            slot = int(self._table[row, position])
            assert slot >= self.limits.page_size, f"row {row} position {position} lies in the dummy page"
            if position >= computed:
                self._kv[slot] = state
            else:
                assert self._kv.get(slot) == state, f"row {row} position {position}: slot {slot} holds something else"
        return state

    def _write_table(self, batch: ModelWorkerBatch) -> None:
        at = 0
        writes = batch.writes
        for row, start, length in zip(writes.rows, writes.starts, writes.lengths, strict=True):
            assert row in self._rows, f"a write to row {row}, which is not open"
            slots = writes.slots[at : at + length]
            assert len(slots) == length, "fewer slots than the runs say"
            self._table[row, start : start + length] = slots
            at += int(length)
        assert at == len(writes.slots), "more slots than the runs say"

    def _check(self, batch: ModelWorkerBatch) -> None:
        limits, n = self.limits, len(batch.rows)
        assert n > 0, "an empty batch"
        for name in ("rows", "new_tokens", "computed", "token_ids", "closed"):
            assert getattr(batch, name).dtype == np.int32, f"{name} is not int32"
        for name in ("new_tokens", "computed", "relay", "sample"):
            assert len(getattr(batch, name)) == n, f"{name} has not one entry a row"
        assert len(set(batch.rows.tolist())) == n, "a row is in the batch twice"
        assert batch.rows.min() > 0, "the dummy row is in the batch"
        assert batch.new_tokens.min() >= 1, "a row advances by nothing"
        assert int(batch.new_tokens.sum()) == len(batch.token_ids) <= limits.max_tokens
        assert (batch.computed + batch.new_tokens).max() <= limits.max_context
        assert batch.token_ids.min() >= 0, "a negative token id"
        assert batch.token_ids.max() < limits.vocab_size, "a token id outside the vocabulary"
