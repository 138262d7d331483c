"""How many tokens of an answer are reasoning: those up to the end of the text that ends it.

Counted on the ids, so that it does not matter in which chunks the text came.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.managers.text.incremental_decoder import IncrementalDecoder


class ReasoningTokens:
    """end: the text that ends the reasoning. One a choice."""

    def __init__(self, end: str, decoder: IncrementalDecoder) -> None:
        self._end = end
        self._decoder = decoder
        self._tail = ""
        self._over = False
        self.count = 0

    def push(self, ids: Sequence[int]) -> None:
        if self._over:
            return
        for token in ids:
            self.count += 1
            self._tail += self._decoder.push(token)
            if self._end in self._tail:
                self._over = True
                return
            # Enough to find an end that the next token completes.
            self._tail = self._tail[-len(self._end) :]
