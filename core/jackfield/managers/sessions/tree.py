"""One session: a tree of turns, each with the ids that it added to the turn before it. Knows no clock, no lock and no request.

A context is told again in every turn, and the prefix cache makes that cheap; here only what each turn added is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


class Node:
    """A turn.

    label     the id by which clients continue from it
    kept      so many tokens of the parent's context begin this one's; 0 without a parent
    own       int32: what comes after them, prompt and answer
    prompt_length   tokens of its context before its answer
    open      it still runs: its answer is not known
    number    turns count up in the order of their beginning
    children  by their numbers
    """

    __slots__ = ("children", "kept", "label", "number", "open", "own", "parent", "prompt_length")

    def __init__(self, label: str, parent: Node | None, kept: int, prompt: NDArray[np.int32], number: int) -> None:
        self.label = label
        self.parent = parent
        self.kept = kept
        self.own = prompt
        self.prompt_length = kept + len(prompt)
        self.open = True
        self.number = number
        self.children: dict[int, Node] = {}

    @property
    def length(self) -> int:
        """Tokens of its context."""
        return self.kept + len(self.own)

    def context(self, length: int) -> list[int]:
        """The first `length` ids of its context."""
        parts = []
        node: Node | None = self
        while node is not None and length > 0:
            if length > node.kept:
                parts.append(node.own[: length - node.kept])
                length = node.kept
            node = node.parent
        ids: list[int] = np.concatenate(parts[::-1]).tolist() if parts else []
        return ids

    def below(self) -> Iterator[Node]:
        """All turns that go on from this one, directly or not."""
        rest = list(self.children.values())
        while rest:
            node = rest.pop()
            yield node
            rest.extend(node.children.values())


class SessionTree:
    """tokens: held by all turns together, with what open ones may still add. detached: labels of turns that may come back."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.roots: dict[int, Node] = {}
        self.tokens = 0
        self.detached: set[str] = set()
        self._reserved: dict[int, int] = {}
        self._numbers = 0

    @property
    def open_turns(self) -> int:
        return len(self._reserved)

    @property
    def latest(self) -> Node | None:
        return next(reversed(self.nodes.values()), None)

    def followers(self, parent: Node | None) -> list[Node]:
        """What `replace` forgets: the turns after `parent`, or all."""
        return list(self.nodes.values()) if parent is None else list(parent.below())

    def begin(self, label: str, parent: Node | None, kept: int, prompt: NDArray[np.int32], most: int) -> Node:
        """most: tokens of its answer."""
        self._numbers += 1
        node = Node(label, parent, kept, prompt, self._numbers)
        self.nodes[label] = node
        self._siblings(parent)[node.number] = node
        self._reserved[node.number] = len(prompt) + most
        self.tokens += self._reserved[node.number]
        return node

    def complete(self, node: Node, answer: NDArray[np.int32]) -> None:
        self.tokens += len(node.own) + len(answer) - self._reserved.pop(node.number)
        node.own = np.concatenate([node.own, answer])
        node.open = False

    def undo(self, node: Node) -> None:
        """As if the turn had never begun. It is open, so nothing goes on from it."""
        self.tokens -= self._reserved.pop(node.number)
        del self.nodes[node.label]
        del self._siblings(node.parent)[node.number]

    def detach(self, nodes: list[Node]) -> None:
        """None of them is open, and with each all that goes on from it is among them."""
        for node in nodes:
            del self.nodes[node.label]
            del self._siblings(node.parent)[node.number]
            self.tokens -= len(node.own)
            self.detached.add(node.label)

    def attach(self, nodes: list[Node]) -> None:
        """Undo `detach`."""
        for node in nodes:
            self.nodes[node.label] = node
            self._siblings(node.parent)[node.number] = node
            self.tokens += len(node.own)
        self.drop(nodes)
        self.nodes = dict(sorted(self.nodes.items(), key=lambda item: item[1].number))

    def drop(self, nodes: list[Node]) -> None:
        """Detached ones will not come back."""
        self.detached.difference_update(node.label for node in nodes)

    def _siblings(self, parent: Node | None) -> dict[int, Node]:
        return self.roots if parent is None else parent.children
