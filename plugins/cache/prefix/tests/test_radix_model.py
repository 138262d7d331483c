"""The radix cache against a model that is nothing but a set of prefixes, under random requests (B55, B57).

A slot's content is the whole prefix that was computed into it, so a wrong slot anywhere is seen. For eviction the model has
a twin of each strategy that keeps its numbers for every page and looks through all of them. What is evicted goes to a tier,
from which it comes back later as a load does, and a router's copy of the cache is kept from its events alone. The model is
driven twice: by hypothesis, which finds and shortens odd sequences, and by a long seeded walk, which fills the tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheKey, Lease
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_cache import RadixCache

Prefix = tuple[bytes, tuple[int, ...]]
POOL = 4096
EVICTIONS: tuple[Eviction, ...] = get_args(Eviction)


@dataclass
class Use:
    """What is known of one stored page: when it came, and who used it."""

    stored: int
    last: int = 0
    priorities: list[int] = field(default_factory=list)


FIRST_TO_GO: dict[str, Callable[[Use], tuple[int, ...]]] = {
    "lru": lambda use: (use.last,),
    "lfu": lambda use: (len(use.priorities), use.last),
    "fifo": lambda use: (use.stored,),
    "mru": lambda use: (-use.last,),
    "filo": lambda use: (-use.stored,),
    "priority": lambda use: (max(use.priorities), use.last),
    "slru": lambda use: (len(use.priorities) > 1, use.last),
}


@dataclass
class Request:
    """row: slot of each computed token; owned from lease.length on."""

    namespace: bytes
    tokens: list[int]
    lease: Lease
    row: list[int] = field(default_factory=list)
    priority: int = 0
    used: bool = False
    final: bool = False

    def prefix(self, length: int) -> Prefix:
        return (self.namespace, tuple(self.tokens[:length]))

    def key(self, length: int) -> CacheKey:
        tokens = np.array(self.tokens[:length], dtype=np.int32)
        return CacheKey(namespace=self.namespace, tokens=tokens, priority=self.priority)


class Model:
    """Requests over one cache and one pool. Each method acts on the cache and on the model, and compares the two."""

    def __init__(self, page_size: int, eviction: Eviction = "lru") -> None:
        self.page_size = page_size
        self.cache = RadixCache(page_size, eviction, events=True, evicted=True)
        self.first_to_go = FIRST_TO_GO[eviction]
        self.uses: dict[Prefix, Use] = {}
        self.time = 0
        self.free = list(range(POOL))
        self.content: dict[int, Prefix] = {}
        self.stored: dict[Prefix, list[int]] = {}  # each whole page in the tree: the prefix to its end -> its slots
        self.requests: list[Request] = []
        self.tier: dict[Prefix, None] = {}  # pages that were evicted: the prefix to the end of each
        self.mirror: set[Prefix] = set()  # what a router believes to be stored
        self.operations = 0
        self.seen: Counter[str] = Counter()

    def arrive(
        self, namespace: bytes, letters: list[int], length: int, limit: int, priority: int = 0, as_given: bool = False
    ) -> None:
        """Half a page of each letter, then of 0s: few kinds of prompts, so that prefixes meet and pages part inside."""
        half = 1 if as_given else max(1, self.page_size // 2)
        tokens = ([letter for letter in letters for _ in range(half)] + [0] * length)[:length]
        expected = self.cached_length(namespace, tokens)
        key = CacheKey(namespace=namespace, tokens=np.array(tokens, dtype=np.int32), priority=priority)
        assert self.cache.peek([key]).tolist() == [expected]
        forest = self.cache.forest([key, *(request.key(len(request.tokens)) for request in self.requests)])
        assert forest.matched.tolist() == [
            expected,
            *(self.cached_length(request.namespace, request.tokens) for request in self.requests),
        ]
        lease = self.cache.acquire(key, limit)
        assert lease.length == min(expected, min(limit, length) // self.page_size * self.page_size)
        self.requests.append(Request(namespace, tokens, lease, lease.slots.tolist(), priority))
        self.seen["hit"] += lease.length > 0

    def compute_and_commit(self, pick: int, count: int, final: bool) -> None:
        if not self.requests:
            return
        request = self.requests[pick % len(self.requests)]
        if request.final or count > len(self.free):
            return
        while len(request.tokens) < len(request.row) + count:
            request.tokens.append(pick % 2)
        for _ in range(count):
            slot = self.free.pop()
            request.row.append(slot)
            self.content[slot] = request.prefix(len(request.row))
        length = len(request.row)
        start = request.lease.length
        known = self.cached_length(request.namespace, request.tokens[:length])
        row = np.array(request.row, dtype=np.int32)
        done = self.cache.commit(request.lease, request.key(length), row, final=final)
        request.final = final
        request.used = True

        whole = length // self.page_size * self.page_size
        assert done.length == whole == request.lease.length
        assert done.free.slots.tolist() == request.row[start:known]
        assert done.slots.tolist() == request.lease.slots.tolist()
        request.row[:whole] = done.slots.tolist()
        self.give_back(done.free.slots)
        self.time += 1
        for end in range(self.page_size, whole + 1, self.page_size):
            page = request.row[end - self.page_size : end]
            assert self.stored.setdefault(request.prefix(end), page) == page
            self.uses.setdefault(request.prefix(end), Use(self.time))
        self.seen["duplicate"] += len(done.free.slots) > 0

    def leave(self, pick: int) -> None:
        if not self.requests:
            return
        request = self.requests.pop(pick % len(self.requests))
        self.give_back(np.array(request.row[request.lease.length :], dtype=np.int32))
        self.cache.release(request.lease)
        self.time += 1
        for end in range(self.page_size, request.lease.length + 1, self.page_size):
            use = self.uses[request.prefix(end)]
            use.last = self.time
            if request.used:
                use.priorities.append(request.priority)

    def evict(self, pages: int) -> None:
        before = self.cache.sizes().evictable
        expected = self.next_to_go(pages)
        freed = self.cache.evict(Amounts(slots=pages * self.page_size)).slots
        self.to_tier(freed)
        assert len(freed) == min(before, pages * self.page_size)
        leased = {slot for request in self.requests for slot in request.row}
        assert not leased & set(freed.tolist())
        ends = freed[self.page_size - 1 :: self.page_size].tolist()
        gone = [slot for end in ends for slot in self.stored.pop(self.content[end])]
        assert gone == freed.tolist()
        assert {self.content[end] for end in ends} == set(expected)
        for prefix in expected:
            del self.uses[prefix]
        self.give_back(freed)
        for namespace, tokens in self.stored:  # what is left is still made of prefixes
            before_page = tokens[: -self.page_size]
            assert not before_page or (namespace, before_page) in self.stored
        self.seen["evicted"] += len(freed) > 0

    def to_tier(self, freed: NDArray[np.int32]) -> None:
        """All that went is told, with the KV of each whole sequence as it still stands."""
        gone: list[int] = []
        for run in self.cache.take_evicted():
            tokens = run.key.tokens.tolist()
            assert len(run.slots) == len(tokens) > run.start >= 0
            assert run.start % self.page_size == len(tokens) % self.page_size == 0
            for i, slot in enumerate(run.slots.tolist()):
                assert self.content[slot] == (run.key.namespace, tuple(tokens[: i + 1]))
            gone += run.slots[run.start :].tolist()
            ends = range(run.start + self.page_size, len(tokens) + 1, self.page_size)
            self.tier.update(((run.key.namespace, tuple(tokens[:end])), None) for end in ends)
        assert sorted(gone) == sorted(freed.tolist())
        assert not self.cache.take_evicted()

    def load(self, pick: int) -> None:
        """A page that was evicted comes back with all before it: what is missing is filled beside the cache, then committed;
        pages that came by another way in the meantime are duplicates."""
        if not self.tier:
            return
        namespace, tokens = page = list(self.tier)[pick % len(self.tier)]
        del self.tier[page]
        self.arrive(namespace, list(tokens), len(tokens), len(tokens), as_given=True)
        missing = len(tokens) - self.requests[-1].lease.length
        if missing:
            self.compute_and_commit(-1, missing, True)
            self.seen["loaded"] += 1
        self.leave(-1)

    def next_to_go(self, pages: int) -> list[Prefix]:
        """The brute-force twin: again and again, of all pages without a lease or a continuation, the strategy's first."""
        leased = {
            request.prefix(end)
            for request in self.requests
            for end in range(self.page_size, request.lease.length + 1, self.page_size)
        }
        left = dict(self.uses)
        gone: list[Prefix] = []
        while len(gone) < pages:
            parents = {(namespace, tokens[: -self.page_size]) for namespace, tokens in left}
            order = {prefix: self.first_to_go(use) for prefix, use in left.items() if prefix not in leased | parents}
            if not order:
                break
            first = min(order.values())
            (prefix,) = (prefix for prefix, at in order.items() if at == first)  # never two
            self.seen["chosen"] += len(order) > 1
            gone.append(prefix)
            del left[prefix]
        return gone

    def reset(self) -> None:
        if self.requests:
            with pytest.raises(RuntimeError):
                self.cache.reset()
            return
        self.give_back(self.cache.reset().slots)
        self.stored.clear()
        self.uses.clear()

    def follow_events(self) -> None:
        events = self.cache.take_events()
        for event in events:
            if event.action == "cleared":
                self.mirror.clear()
                continue
            end = len(event.tokens)
            block = {
                (event.namespace, event.tokens[:at])
                for at in range(end - event.length + self.page_size, end + 1, self.page_size)
            }
            if event.action == "stored":
                assert not block & self.mirror
                self.mirror |= block
            else:
                assert event.action == "removed"
                assert block <= self.mirror
                self.mirror -= block
        assert not events or self.mirror == set(self.stored)

    def check(self) -> None:
        """Every row holds its own tokens, and the sums are exact."""
        self.operations += 1
        self.cache.check()
        self.follow_events()
        for request in self.requests:
            for i, slot in enumerate(request.row):
                assert self.content[slot] == request.prefix(i + 1)
        sizes = self.cache.sizes()
        protected = {slot for request in self.requests for slot in request.row[: request.lease.length]}
        stored = self.page_size * len(self.stored)
        assert sizes.protected == len(protected)
        assert sizes.evictable + sizes.protected == stored
        held = sum(len(request.row) - request.lease.length for request in self.requests)
        assert len(self.free) + stored + held == POOL
        assert len(set(self.free)) == len(self.free)

    def cached_length(self, namespace: bytes, tokens: list[int]) -> int:
        length = 0
        while (
            length + self.page_size <= len(tokens)
            and (namespace, tuple(tokens[: length + self.page_size])) in self.stored
        ):
            length += self.page_size
        return length

    def give_back(self, slots: NDArray[np.int32]) -> None:
        self.free.extend(slots.tolist())


NAMESPACES = (b"", b"salt")
LETTERS = st.lists(st.integers(0, 1), max_size=6)
PRIORITIES = st.integers(-1, 1)


class CacheMachine(RuleBasedStateMachine):
    page_size = 1
    eviction: Eviction = "lru"
    counts: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(self.page_size, self.eviction)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        letters=LETTERS,
        pages=st.integers(0, 5),
        more=st.integers(1, 16),
        priority=PRIORITIES,
    )
    def whole_request(self, namespace: bytes, letters: list[int], pages: int, more: int, priority: int) -> None:
        length = pages * self.page_size + more
        self.model.arrive(namespace, letters, length, length - 1, priority)
        self.model.compute_and_commit(-1, length - self.model.requests[-1].lease.length, True)
        self.model.leave(-1)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        letters=LETTERS,
        length=st.integers(1, 80),
        limit=st.integers(0, 90),
        priority=PRIORITIES,
    )
    def arrive(self, namespace: bytes, letters: list[int], length: int, limit: int, priority: int) -> None:
        self.model.arrive(namespace, letters, length, limit, priority)

    @rule(pick=st.integers(0, 9), count=st.integers(1, 40), final=st.booleans())
    def compute_and_commit(self, pick: int, count: int, final: bool) -> None:
        self.model.compute_and_commit(pick, count, final)

    @rule(pick=st.integers(0, 9))
    def leave(self, pick: int) -> None:
        self.model.leave(pick)

    @rule(pages=st.integers(0, 10))
    def evict(self, pages: int) -> None:
        self.model.evict(pages)

    @rule(pick=st.integers(0, 99))
    def load(self, pick: int) -> None:
        self.model.load(pick)

    @rule()
    def reset(self) -> None:
        self.model.reset()

    def teardown(self) -> None:
        self.counts["radix operations"] += self.model.operations

    @invariant()
    def all_is_right(self) -> None:
        self.model.check()


CASES = [(eviction, page_size) for eviction in EVICTIONS for page_size in (1, 4, 16)]
OPERATIONS = 10_000
"""Operations of all cases of the machine together, times --soak-factor; the walks come to it."""


@pytest.mark.soak
@pytest.mark.parametrize(("eviction", "page_size"), CASES)
def test_b57_any_sequence_of_requests_agrees_with_the_model(
    eviction: Eviction, page_size: int, soak_factor: int, soak_counts: Counter[str]
) -> None:
    counts: Counter[str] = Counter()
    members = {"page_size": page_size, "eviction": eviction, "counts": counts}
    machine = type(f"CacheMachine_{eviction}_{page_size}", (CacheMachine,), members)
    while counts["radix operations"] < OPERATIONS * soak_factor / len(CASES):
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=10, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
    soak_counts.update(counts)


@pytest.mark.soak
@pytest.mark.parametrize(("eviction", "page_size"), CASES)
def test_b55_b57_a_long_walk_keeps_every_sum_and_the_strategy_s_order(
    eviction: Eviction, page_size: int, soak_factor: int, soak_counts: Counter[str]
) -> None:
    """10,000 operations with lru and as many with all others; sums and rows are checked after each, and each eviction
    against the twin. What is leased is never evicted (B55)."""
    operations = 3400 if eviction == "lru" else 600
    for walk in range(soak_factor):
        seen = long_walk(np.random.default_rng([page_size, walk]), Model(page_size, eviction), operations)
        assert min(seen[what] for what in ("hit", "duplicate", "evicted", "chosen")) > operations // 34, seen
        assert seen["loaded"] > operations // 80
        soak_counts["radix operations of walks"] += operations


def long_walk(rng: np.random.Generator, model: Model, operations: int) -> Counter[str]:
    page_size = model.page_size
    for _ in range(operations):
        act = rng.random()
        if act < 0.35 and len(model.requests) < 12:
            letters = rng.integers(0, 2, rng.integers(0, 7)).tolist()
            length = int(rng.integers(1, 5 * page_size + 8))
            model.arrive(
                NAMESPACES[rng.integers(2)], letters, length, int(rng.integers(0, length + 1)), int(rng.integers(-1, 2))
            )
        elif act < 0.65:
            model.compute_and_commit(int(rng.integers(99)), int(rng.integers(1, 3 * page_size + 2)), rng.random() < 0.3)
        elif act < 0.7:
            model.load(int(rng.integers(999)))
        elif act < 0.9:
            model.leave(int(rng.integers(99)))
        elif act < 0.999:
            model.evict(int(rng.integers(0, 6)))
        else:
            while model.requests:
                model.leave(0)
            model.reset()
        model.check()
    return model.seen
