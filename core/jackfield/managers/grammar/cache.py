"""Compiled grammars that are kept for later requests: those used last, as many as fit in so many bytes."""

from __future__ import annotations

from collections import OrderedDict

from jackfield.hookspecs.grammar import CompiledGrammar, GrammarSpec

OVERHEAD = 1024
"""Bytes that an entry counts beside its grammar and its source."""


class GrammarCache:
    """bytes     that the entries count for, at most `most`"""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._entries: OrderedDict[GrammarSpec, tuple[CompiledGrammar, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, spec: GrammarSpec) -> CompiledGrammar | None:
        entry = self._entries.get(spec)
        if entry is None:
            return None
        self._entries.move_to_end(spec)
        return entry[0]

    def put(self, spec: GrammarSpec, grammar: CompiledGrammar) -> None:
        """Keep it, if it fits at all; those that were not used for longest go."""
        cost = max(0, grammar.nbytes) + 4 * len(spec.source) + OVERHEAD
        if spec in self._entries:
            self.bytes -= self._entries.pop(spec)[1]
        if cost > self._most:
            return
        while self._entries and self.bytes + cost > self._most:
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed
        self._entries[spec] = grammar, cost
        self.bytes += cost
