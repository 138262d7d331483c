"""A worker and a prefix cache to test schedulers, policies, loops and caches with: slow, small, and strict.

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
    Amounts,
    CacheKey,
    CacheSizes,
    Committed,
    Freed,
    Launched,
    Lease,
    ModelWorker,
    ModelWorkerBatch,
    PendingResult,
    PrefixCache,
    PrefixForest,
    RowOpen,
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
        self.closed = False
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
            holder.refused |= batch.step in self.refusing
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

    def sample(self, launched: Launched, masks: object = None) -> PendingResult:
        assert isinstance(launched, FakeLaunched)
        assert not launched.sampled, "a step is sampled twice"
        launched.sampled = True
        tokens, starts, errors = [], [0], {}
        if launched.batch.step in self.refusing:
            nothing = np.zeros(len(launched.holders) + 1, dtype=np.int32)
            return FakePending(WorkerResult(tokens=nothing[:0], starts=nothing, refused="no plan for this batch"))
        for i, (state, holder) in enumerate(zip(launched.states, launched.holders, strict=True)):
            if holder.opened.uid in self.failing:
                errors[i] = "made to fail"
            elif launched.batch.sample[i]:
                tokens += self._draw(launched.batch, i, state, holder)
            starts.append(len(tokens))
        return FakePending(
            WorkerResult(
                tokens=np.array(tokens, dtype=np.int32), starts=np.array(starts, dtype=np.int32), errors=errors
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
        holder.sampled.append(token)
        holder.newest = token
        return [token]

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


@dataclass
class _Page:
    slots: NDArray[np.int32]
    parent: tuple[bytes, bytes] | None
    leases: int = 0
    children: int = 0
    used: int = 0


class PageLease(Lease):
    __slots__ = ("pages", "released")

    def __init__(self, slots: NDArray[np.int32], pages: list[tuple[bytes, bytes]]) -> None:
        super().__init__(len(slots), slots)
        self.pages = pages
        self.released = False


class PageCache(PrefixCache):
    """The slow twin of a radix cache: a dict from (namespace, whole prefix) to one page. Prefix sharing, LRU eviction."""

    def __init__(self, page_size: int) -> None:
        self._size = page_size
        self._pages: dict[tuple[bytes, bytes], _Page] = {}
        self._leases = 0
        self._tick = 0

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        return np.array([len(self._match(key, len(key.tokens))) * self._size for key in keys], dtype=np.int32)

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest:
        """One node a page."""
        paths = [self._match(key, len(key.tokens)) for key in keys]
        return PrefixForest.from_paths(paths, np.array([len(path) * self._size for path in paths], dtype=np.int32))

    def acquire(self, key: CacheKey, limit: int) -> PageLease:
        pages = self._match(key, limit)
        self._lock(pages)
        self._leases += 1
        return PageLease(self._slots(pages), pages)

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        assert isinstance(lease, PageLease)
        assert not lease.released
        assert len(slots) == len(key.tokens) >= lease.length
        assert np.array_equal(slots[: lease.length], lease.slots)
        free = []
        names = self._names(key, len(key.tokens))
        for i, name in enumerate(names[len(lease.pages) :], start=len(lease.pages)):
            mine = slots[i * self._size : (i + 1) * self._size].copy()
            if name in self._pages:
                free.append(mine)
            else:
                parent = names[i - 1] if i else None
                self._pages[name] = _Page(mine, parent)
                if parent is not None:
                    self._pages[parent].children += 1
        self._lock(names[len(lease.pages) :])
        lease.pages = names
        lease.slots = self._slots(names)
        lease.length = len(lease.slots)
        given_back = np.concatenate(free) if free else np.empty(0, dtype=np.int32)
        return Committed(length=lease.length, slots=lease.slots, free=Freed(slots=given_back))

    def release(self, lease: Lease) -> None:
        assert isinstance(lease, PageLease)
        if lease.released:
            raise RuntimeError("a lease is released twice")
        lease.released = True
        self._leases -= 1
        for name in lease.pages:
            self._pages[name].leases -= 1

    def evict(self, need: Amounts) -> Freed:
        gone: list[NDArray[np.int32]] = []
        while len(gone) * self._size < need.slots:
            leaves = [name for name, page in self._pages.items() if not page.leases and not page.children]
            if not leaves:
                break
            page = self._pages.pop(min(leaves, key=lambda name: self._pages[name].used))
            if page.parent is not None:
                self._pages[page.parent].children -= 1
            gone.append(page.slots)
        return Freed(slots=np.concatenate(gone) if gone else np.empty(0, dtype=np.int32))

    def sizes(self) -> CacheSizes:
        leased = sum(page.leases > 0 for page in self._pages.values())
        return CacheSizes(evictable=(len(self._pages) - leased) * self._size, protected=leased * self._size)

    def reset(self) -> Freed:
        if self._leases:
            raise RuntimeError(f"{self._leases} leases exist")
        slots = [page.slots for page in self._pages.values()]
        self._pages.clear()
        return Freed(slots=np.concatenate(slots) if slots else np.empty(0, dtype=np.int32))

    def check(self) -> None:
        slots = [slot for page in self._pages.values() for slot in page.slots.tolist()]
        assert len(slots) == len(set(slots)), "a slot is cached twice"
        assert all(page.leases >= 0 for page in self._pages.values()), "a page with fewer than no leases"

    def _names(self, key: CacheKey, limit: int) -> list[tuple[bytes, bytes]]:
        pages = min(limit, len(key.tokens)) // self._size
        return [(key.namespace, key.tokens[: (i + 1) * self._size].tobytes()) for i in range(pages)]

    def _match(self, key: CacheKey, limit: int) -> list[tuple[bytes, bytes]]:
        names = self._names(key, limit)
        for i, name in enumerate(names):
            if name not in self._pages:
                return names[:i]
        return names

    def _slots(self, names: list[tuple[bytes, bytes]]) -> NDArray[np.int32]:
        if not names:
            return np.empty(0, dtype=np.int32)
        return np.concatenate([self._pages[name].slots for name in names])

    def _lock(self, names: list[tuple[bytes, bytes]]) -> None:
        self._tick += 1
        for name in names:
            self._pages[name].leases += 1
            self._pages[name].used = self._tick


class NoSharingCache(PageCache):
    """Takes nothing, shares nothing: every request computes its whole prompt."""

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Committed:
        return Committed(length=0, slots=np.empty(0, dtype=np.int32), free=Freed())
