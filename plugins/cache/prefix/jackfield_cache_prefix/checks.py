"""The radix cache's invariants, checked over the whole tree. Slow; never called on the way of a request."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from jackfield_cache_prefix.eviction import is_evictable_leaf
from jackfield_cache_prefix.radix_tree import Node

if TYPE_CHECKING:
    from jackfield_cache_prefix.radix_cache import RadixCache


def check_cache(cache: RadixCache) -> None:
    """Raises AssertionError naming what is wrong."""
    nodes = list(cache.tree.nodes())
    _check_shape(cache, nodes)
    _check_leases(cache, nodes)
    _check_sizes(cache, nodes)
    _check_queue(cache, nodes)
    _check_window(cache, nodes)
    codes = Counter(code for node in nodes for code in node.tokens[node.tokens < 0].tolist())
    _ensure(dict(codes) == cache.marks.counts(), "the mark table's counts are not those of the tree")
    _ensure(len(cache.marks) == len(codes), "the mark table keeps marks that are in no node")


def _check_shape(cache: RadixCache, nodes: list[Node]) -> None:
    page = cache.tree.page_size
    for namespace, root in cache.tree.roots.items():
        _ensure(root.namespace == namespace and root.parent is None and root.length == 0, "a root is not a root")
        _ensure(bool(root.children) or root.refs > 0, f"the root of {namespace!r} holds nothing and was not dropped")
    for parent in [*cache.tree.roots.values(), *nodes]:
        for first, child in parent.children.items():
            _ensure(child.parent is parent, "a child does not know its parent")
            _ensure(child.namespace == parent.namespace, "a child is in another namespace than its parent")
            _ensure(first == child.tokens[:page].tobytes(), "a child is filed under a page that is not its first")
            if parent.parent is not None:
                _ensure(child.recency <= parent.recency, "a parent is older than its child")
                _ensure(child.uses <= parent.uses, "a parent was used less often than its child")
                _ensure(child.priority <= parent.priority, "a parent has a lower priority than its child")
                _ensure(parent.born <= child.born, "a parent was stored after its child")
    for node in nodes:
        _ensure(node.length > 0 and node.length % page == 0, f"a node holds {node.length} tokens, not whole pages")
        _ensure(len(node.slots) == node.length, "a node has not one slot for each token")
    if nodes:
        slots = np.concatenate([node.slots for node in nodes])
        _ensure(len(np.unique(slots)) == len(slots), "a slot is in the tree twice")


def _check_leases(cache: RadixCache, nodes: list[Node]) -> None:
    refs: Counter[Node] = Counter()
    for lease in cache.leases:
        path: list[Node] = []
        node: Node | None = lease.node
        while node is not None:
            path.append(node)
            node = node.parent
        _ensure(cache.tree.roots.get(path[-1].namespace) is path[-1], "a lease ends at a node outside the tree")
        held = np.concatenate([step.slots for step in reversed(path)])
        _ensure(lease.length == len(held), f"a lease claims {lease.length} tokens and holds {len(held)}")
        _ensure(np.array_equal(held, lease.slots), "a lease's slots are not those of its path")
        refs.update(path)
    for node in [*cache.tree.roots.values(), *nodes]:
        _ensure(node.refs == refs[node], f"a node counts {node.refs} leases and has {refs[node]}")


def _check_sizes(cache: RadixCache, nodes: list[Node]) -> None:
    sizes = cache.sizes()
    evictable = sum(node.length for node in nodes if node.refs == 0)
    protected = sum(node.length for node in nodes if node.refs > 0)
    _ensure(sizes.evictable == evictable, f"evictable says {sizes.evictable}, the tree {evictable}")
    _ensure(sizes.protected == protected, f"protected says {sizes.protected}, the tree {protected}")


def _check_queue(cache: RadixCache, nodes: list[Node]) -> None:
    queued = Counter(cache.queue)
    leaves = {node for node in nodes if is_evictable_leaf(node)}
    _ensure(set(queued) == leaves, f"{len(leaves)} leaves can be evicted and {len(queued)} are queued")
    _ensure(all(count == 1 for count in queued.values()), "a leaf is queued twice")


def _check_window(cache: RadixCache, nodes: list[Node]) -> None:
    window = cache.window
    if window is None:
        _ensure(not any(node.window or node.window_refs for node in nodes), "a node has a component of no group")
        return
    refs: Counter[Node] = Counter()
    for lease in cache.leases:
        end, node = lease.length, lease.node
        while end > lease.floor and node.parent is not None:
            _ensure(node.window, f"a lease reads from {lease.floor} on, and has lost what ends at {end}")
            refs[node] += 1
            end, node = end - node.length, node.parent
        _ensure(end == min(lease.floor, lease.length), "no node begins where a lease's window does")
    for node in nodes:
        _ensure(node.window_refs == refs[node], f"a component counts {node.window_refs} leases and has {refs[node]}")
    free = {node for node in nodes if node.window and not node.window_refs}
    evictable = sum(node.length for node in free)
    protected = sum(node.length for node in nodes if node.window_refs)
    _ensure(window.evictable == evictable, f"window_evictable says {window.evictable}, the tree {evictable}")
    _ensure(window.protected == protected, f"window_protected says {window.protected}, the tree {protected}")
    queued = Counter(window.queue)
    _ensure(set(queued) == free, f"{len(free)} components can be evicted and {len(queued)} are queued")
    _ensure(all(count == 1 for count in queued.values()), "a component is queued twice")


def _ensure(right: bool, wrong: str) -> None:
    if not right:
        raise AssertionError(f"prefix cache: {wrong}")
