"""What is evicted first: SGLang's strategies by SGLang's names, each one ordering key over what a node remembers.

Only leaves without leases are candidates, so under every strategy a prefix outlives its continuations, and what a running
request reads is never touched. The smallest key goes first. Keys change only when a lease through the node ends, and two
leaves never have the same one: each release passes through one path, and each insertion makes one leaf.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, get_args

from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_tree import Node

Order = tuple[int, int]


class Strategy(Protocol):
    def key(self, leaf: Node) -> Order:
        """The leaf of the smallest key is evicted first. O(1)."""
        ...


class Lru:
    """Least recently used: the one whose last lease ended longest ago."""

    def key(self, leaf: Node) -> Order:
        return leaf.recency, 0


class Mru:
    """Most recently used: the one whose last lease ended last. For scans longer than the cache, where lru keeps nothing."""

    def key(self, leaf: Node) -> Order:
        return -leaf.recency, 0


class Lfu:
    """Least frequently used: the one that the fewest requests have used; among equals the least recently used."""

    def key(self, leaf: Node) -> Order:
        return leaf.uses, leaf.recency


class Fifo:
    """First in, first out: the one stored longest ago, however often it was used since."""

    def key(self, leaf: Node) -> Order:
        return leaf.born, 0


class Filo:
    """First in, last out: the one stored last, so that what came first (system prompts, say) stays."""

    def key(self, leaf: Node) -> Order:
        return -leaf.born, 0


class Priority:
    """By the highest `priority` of the requests that have used it, lowest first; among equals the least recently used."""

    def key(self, leaf: Node) -> Order:
        return leaf.priority, leaf.recency


class Slru:
    """Segmented lru: what only one request has used goes before all that `PROTECTED_USES` have; lru within each segment.

    So a stream of prompts that never come back does not push out those that do.
    """

    PROTECTED_USES: ClassVar[int] = 2

    def key(self, leaf: Node) -> Order:
        return int(leaf.uses >= self.PROTECTED_USES), leaf.recency


_STRATEGIES: dict[Eviction, type[Strategy]] = {
    "lru": Lru,
    "lfu": Lfu,
    "fifo": Fifo,
    "mru": Mru,
    "filo": Filo,
    "priority": Priority,
    "slru": Slru,
}


def make_strategy(name: Eviction) -> Strategy:
    """Raises ValueError for a name that is none of `Eviction`."""
    if name not in _STRATEGIES:
        raise ValueError(f"unknown eviction {name!r}; there are: {', '.join(get_args(Eviction))}")
    return _STRATEGIES[name]()
