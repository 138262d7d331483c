"""The radix tree: nodes, matching by whole pages, splitting, trimming. It knows no leases, recency or eviction order.

What a node remembers of its use is kept by the cache; the tree only copies it when it splits a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

NONE: Ints = np.empty(0, dtype=np.int32)
NONE.flags.writeable = False

LOWEST = int(np.iinfo(np.int32).min)
"""No request's priority is below it."""


class Node:
    """A run of whole pages below its parent. A root has no parent and no tokens.

    tokens, slots   int32 [length], read-only; slots[i] holds the KV of tokens[i]
    children        first page of the child, as bytes -> the child
    refs            leases whose path passes through this node
    born            number of the commit that stored it; a parent's is never above its child's
    recency         number of the last release that passed through it; a parent's is never below its child's
    uses            how many of these leases had committed something: the requests that have used it; likewise
    priority        the highest priority of those requests; likewise. LOWEST before the first release
    ticket          its newest entry in the eviction queue, or 0
    window          it has KV of window layers; window_refs: leases that still read it; window_ticket: as ticket. All kept by
                    `WindowComponents`, where there are such layers
    """

    __slots__ = (
        "born",
        "children",
        "namespace",
        "parent",
        "priority",
        "recency",
        "refs",
        "slots",
        "ticket",
        "tokens",
        "uses",
        "window",
        "window_refs",
        "window_ticket",
    )

    def __init__(self, parent: Node | None, namespace: bytes, tokens: Ints, slots: Ints) -> None:
        self.parent = parent
        self.namespace = namespace
        self.tokens = tokens
        self.slots = slots
        self.children: dict[bytes, Node] = {}
        self.refs = 0
        self.born = 0
        self.recency = 0
        self.uses = 0
        self.priority = LOWEST
        self.ticket = 0
        self.window = False
        self.window_refs = 0
        self.window_ticket = 0

    @property
    def length(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Match:
    """How far a token sequence follows the tree.

    whole     nodes that matched from end to end, in order
    partial   the node in which the match ended, or None if it ended at a node's end; inside: its matched tokens
    end       position in the sequence behind the last matched token
    """

    whole: list[Node]
    partial: Node | None
    inside: int
    end: int

    def slots(self) -> Ints:
        """Slots of the matched tokens, int32, read-only. No copy where one node holds them all."""
        parts = [node.slots for node in self.whole]
        if self.partial is not None:
            parts.append(self.partial.slots[: self.inside])
        if len(parts) == 1:
            return parts[0]
        return freeze(np.concatenate(parts)) if parts else NONE


class RadixTree:
    def __init__(self, page_size: int) -> None:
        if page_size < 1:
            raise ValueError(f"page_size must be at least 1, got {page_size}")
        self.page_size = page_size
        self.roots: dict[bytes, Node] = {}

    def whole_pages(self, length: int) -> int:
        return length - length % self.page_size

    def descend(self, node: Node, tokens: Ints, start: int, end: int) -> Match:
        """Follow tokens[start:end], whole pages, below `node`. Changes nothing."""
        page = self.page_size
        whole: list[Node] = []
        at = start
        while at < end:
            child = node.children.get(tokens[at : at + page].tobytes())
            if child is None:
                break
            length = len(child.tokens)
            same = _same_pages(child.tokens, tokens[at : min(end, at + length)], page)
            at += same
            if same < length:
                return Match(whole, child, same, at)
            whole.append(child)
            node = child
        return Match(whole, None, 0, at)

    def split(self, node: Node, length: int) -> Node:
        """Cut `node` after `length` tokens and return the new upper part.

        `node` stays the lower part with its children, so that whoever points at it (a lease, the eviction queue)
        still points at the end of the same token sequence.
        """
        parent = node.parent
        if parent is None or not 0 < length < node.length or length % self.page_size:
            raise ValueError(f"cannot split a node of {node.length} tokens after {length}")
        # Both halves are copied: views would keep the whole run in memory for as long as one page of it is cached.
        upper = Node(parent, node.namespace, own(node.tokens[:length]), own(node.slots[:length]))
        upper.refs = node.refs
        upper.born = node.born
        upper.recency = node.recency
        upper.uses = node.uses
        upper.priority = node.priority
        parent.children[self._first_page(node.tokens)] = upper
        node.tokens = own(node.tokens[length:])
        node.slots = own(node.slots[length:])
        node.parent = upper
        upper.children[self._first_page(node.tokens)] = node
        return upper

    def insert(self, parent: Node, tokens: Ints, slots: Ints) -> Node:
        """A new leaf below `parent`. The arrays are copied."""
        node = Node(parent, parent.namespace, own(tokens), own(slots))
        first = self._first_page(tokens)
        if first in parent.children:
            raise ValueError("the parent has a child that begins with this page")
        parent.children[first] = node
        return node

    def remove(self, leaf: Node) -> None:
        """Take a leaf out. It has no parent afterwards."""
        if leaf.parent is None or leaf.children:
            raise ValueError("only a leaf can be removed")
        del leaf.parent.children[self._first_page(leaf.tokens)]
        leaf.parent = None

    def trim(self, leaf: Node, length: int) -> Ints:
        """Keep the first `length` tokens of a leaf and return the slots of the others."""
        if leaf.children or not 0 < length < leaf.length or length % self.page_size:
            raise ValueError(f"cannot trim a node of {leaf.length} tokens to {length}")
        gone = own(leaf.slots[length:])
        # A view, until it keeps more than twice its own size alive: so repeated trimming costs what it frees.
        held = leaf.tokens if leaf.tokens.base is None else leaf.tokens.base
        keep = own if len(held) > 2 * length else _view
        leaf.tokens = keep(leaf.tokens[:length])
        leaf.slots = keep(leaf.slots[:length])
        return gone

    def root(self, namespace: bytes) -> Node:
        """The namespace's root, made if there is none."""
        root = self.roots.get(namespace)
        if root is None:
            root = self.roots[namespace] = Node(None, namespace, NONE, NONE)
        return root

    def drop_root_if_bare(self, root: Node) -> None:
        """Forget a root that holds nothing and that nobody leases, so that salts do not pile up."""
        if not root.children and root.refs == 0:
            self.roots.pop(root.namespace, None)

    def nodes(self) -> Iterator[Node]:
        """All nodes except the roots, parents first."""
        stack = [child for root in self.roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def prefix(self, node: Node) -> Ints:
        """All tokens from the root to the end of `node`."""
        parts: list[Ints] = []
        at: Node | None = node
        while at is not None:
            parts.append(at.tokens)
            at = at.parent
        return np.concatenate(parts[::-1])

    def path_slots(self, node: Node) -> Ints:
        """Their slots."""
        parts: list[Ints] = []
        at: Node | None = node
        while at is not None:
            parts.append(at.slots)
            at = at.parent
        return np.concatenate(parts[::-1])

    def _first_page(self, tokens: Ints) -> bytes:
        return tokens[: self.page_size].tobytes()


def freeze(array: Ints) -> Ints:
    array.flags.writeable = False
    return array


def joined(parts: list[Ints]) -> Ints:
    """One behind the other; no copy of a single one."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else NONE


def round_up(length: int, page: int) -> int:
    return -(-length // page) * page


def own(array: Ints) -> Ints:
    """A read-only copy."""
    return freeze(np.array(array, dtype=np.int32))


def _view(array: Ints) -> Ints:
    return array


def _same_pages(a: Ints, b: Ints, page: int) -> int:
    """Length of the common beginning, whole pages; a may be longer than b, neither is empty."""
    differ = a[: len(b)] != b
    first = int(differ.argmax())
    if not differ[first]:
        return len(b)
    return first - first % page
