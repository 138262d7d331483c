"""What the radix cache tells others of its nodes: events for routers, and what was evicted for tiers. Both only if asked for."""

from __future__ import annotations

from jackfield.hookspecs import CacheEvent, CacheKey, Evicted
from jackfield_cache_prefix.marks import MarkTable
from jackfield_cache_prefix.radix_tree import Node, RadixTree


class Telling:
    """events, evicted   what was not taken yet, in order; None: nobody asks"""

    def __init__(self, tree: RadixTree, *, events: bool, evicted: bool) -> None:
        self.events: list[CacheEvent] | None = [] if events else None
        self.evicted: list[Evicted] | None = [] if evicted else None
        self._tree = tree

    def stored(self, node: Node, marks: MarkTable) -> None:
        if self.events is not None:
            self.events.append(self._event("stored", node, node.length, marks))

    def removed(self, leaf: Node, keep: int, marks: MarkTable) -> None:
        """All but its first `keep` tokens go now."""
        if self.events is not None:
            self.events.append(self._event("removed", leaf, leaf.length - keep, marks))
        if self.evicted is None:
            return
        tokens = self._tree.prefix(leaf)
        if (tokens < 0).any():
            return  # media stand in no tier
        key = CacheKey(namespace=leaf.namespace, tokens=tokens, priority=leaf.priority)
        self.evicted.append(Evicted(key=key, slots=self._tree.path_slots(leaf), start=len(tokens) - leaf.length + keep))

    def cleared(self) -> None:
        if self.events is not None:
            self.events.append(CacheEvent(action="cleared"))

    def take_events(self) -> list[CacheEvent]:
        if self.events is None:
            return []
        taken, self.events = self.events, []
        return taken

    def take_evicted(self) -> list[Evicted]:
        if self.evicted is None:
            return []
        taken, self.evicted = self.evicted, []
        return taken

    def _event(self, action: str, node: Node, length: int, marks: MarkTable) -> CacheEvent:
        tokens = marks.decode(self._tree.prefix(node))
        return CacheEvent(action=action, namespace=node.namespace, tokens=tokens, length=length)
