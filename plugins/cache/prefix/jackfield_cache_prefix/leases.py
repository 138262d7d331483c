"""A lease of the radix cache, and what a commit to one must not be."""

from __future__ import annotations

import numpy as np

from jackfield.hookspecs import CacheKey, Lease
from jackfield_cache_prefix.radix_tree import Ints, Node


class RadixLease(Lease):
    """node: the last node of the leased path; splits keep it at the path's end. final: the last commit was made.
    priority: the request's. used: something was committed; an admission that was taken back is no use. floor: from where on
    it locks components of the window layers."""

    __slots__ = ("final", "floor", "node", "priority", "used")

    def __init__(self, node: Node, length: int, slots: Ints, priority: int) -> None:
        super().__init__(length, slots)
        self.node = node
        self.priority = priority
        self.used = False
        self.final = False
        self.floor = 0


def refuse_bad_commit(held: RadixLease, key: CacheKey, slots: Ints) -> None:
    """All that can be wrong with a commit's arguments, before anything is changed."""
    if held.final:
        raise RuntimeError("commit after the final commit of this lease")
    if slots.shape != key.tokens.shape:
        raise ValueError(f"{slots.shape} slots for {key.tokens.shape} tokens")
    if key.namespace != held.node.namespace:
        raise ValueError("the key's namespace is not the one that the lease was acquired in")
    if len(key.tokens) < held.length:
        raise ValueError(f"{len(key.tokens)} tokens are committed to a lease that holds {held.length}")
    if not np.array_equal(slots[: held.length], held.slots):
        raise ValueError("the first slots are not the lease's: the row was not rewritten after acquire or commit")
    fresh = key.tokens[held.length :]
    if len(fresh) and fresh.min() < 0:
        raise ValueError(f"token ids must not be negative, got {int(fresh.min())}")
