"""The radix cache against a model that is nothing but a set of prefixes, under random requests (B55, B57).

A slot's content is the whole prefix that was computed into it, so a wrong slot anywhere is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheKey, Lease
from jackfield_cache_prefix.radix_cache import RadixCache

Prefix = tuple[bytes, tuple[int, ...]]
POOL = 4096


@dataclass
class Request:
    """row: slot of each computed token; owned from lease.length on."""

    namespace: bytes
    tokens: list[int]
    lease: Lease
    row: list[int] = field(default_factory=list)
    final: bool = False

    def prefix(self, length: int) -> Prefix:
        return (self.namespace, tuple(self.tokens[:length]))

    def key(self, length: int) -> CacheKey:
        return CacheKey(namespace=self.namespace, tokens=np.array(self.tokens[:length], dtype=np.int32))


class CacheMachine(RuleBasedStateMachine):
    page_size = 1

    @initialize()
    def start(self) -> None:
        self.cache = RadixCache(self.page_size)
        self.free = list(range(POOL))
        self.content: dict[int, Prefix] = {}
        self.stored: dict[Prefix, list[int]] = {}  # each whole page in the tree: the prefix to its end -> its slots
        self.requests: list[Request] = []

    # What requests do

    @rule(
        namespace=st.sampled_from([b"", b"salt"]),
        seed=st.lists(st.integers(0, 1), max_size=5),
        length=st.integers(1, 40),
        limit=st.integers(0, 50),
    )
    def arrive(self, namespace: bytes, seed: list[int], length: int, limit: int) -> None:
        """Prompts of few kinds, so that prefixes meet: a short random beginning, then one fixed continuation."""
        tokens = (seed + [len(seed) % 3] * 40)[:length]
        expected = self.cached_length(namespace, tokens)
        key = CacheKey(namespace=namespace, tokens=np.array(tokens, dtype=np.int32))
        assert self.cache.peek([key]).tolist() == [expected]
        lease = self.cache.acquire(key, limit)
        assert lease.length == min(expected, min(limit, length) // self.page_size * self.page_size)
        request = Request(namespace, tokens, lease, lease.slots.tolist())
        self.requests.append(request)

    @rule(pick=st.integers(0, 1000), count=st.integers(1, 20), final=st.booleans())
    def compute_and_commit(self, pick: int, count: int, final: bool) -> None:
        if not self.requests:
            return
        request = self.requests[pick % len(self.requests)]
        if request.final:
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

        whole = length // self.page_size * self.page_size
        assert done.length == whole == request.lease.length
        assert done.free.slots.tolist() == request.row[start:known]
        assert done.slots.tolist() == request.lease.slots.tolist()
        request.row[:whole] = done.slots.tolist()
        self.give_back(done.free.slots)
        for end in range(self.page_size, whole + 1, self.page_size):
            page = request.row[end - self.page_size : end]
            assert self.stored.setdefault(request.prefix(end), page) == page

    @rule(pick=st.integers(0, 1000))
    def leave(self, pick: int) -> None:
        if not self.requests:
            return
        request = self.requests.pop(pick % len(self.requests))
        self.give_back(np.array(request.row[request.lease.length :], dtype=np.int32))
        self.cache.release(request.lease)

    @rule(pages=st.integers(0, 30))
    def evict(self, pages: int) -> None:
        before = self.cache.sizes().evictable
        freed = self.cache.evict(Amounts(slots=pages * self.page_size)).slots
        assert len(freed) == min(before, pages * self.page_size)
        leased = {slot for request in self.requests for slot in request.row}
        assert not leased & set(freed.tolist())
        ends = freed[self.page_size - 1 :: self.page_size].tolist()
        gone = [slot for end in ends for slot in self.stored.pop(self.content[end])]
        assert gone == freed.tolist()
        self.give_back(freed)
        for namespace, tokens in self.stored:  # what is left is still made of prefixes
            before_page = tokens[: -self.page_size]
            assert not before_page or (namespace, before_page) in self.stored

    @rule()
    def reset(self) -> None:
        if self.requests:
            with pytest.raises(RuntimeError):
                self.cache.reset()
            return
        self.give_back(self.cache.reset().slots)
        self.stored.clear()

    # What must hold after each of them

    @invariant()
    def every_row_holds_its_own_tokens(self) -> None:
        for request in getattr(self, "requests", []):
            for i, slot in enumerate(request.row):
                assert self.content[slot] == request.prefix(i + 1)

    @invariant()
    def the_sums_are_exact(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check()
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


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_b57_random_requests_agree_with_the_model(page_size: int) -> None:
    """Some 10,000 operations over the three page sizes, all sums checked after each."""
    machine = type(f"CacheMachine{page_size}", (CacheMachine,), {"page_size": page_size})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=68,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
