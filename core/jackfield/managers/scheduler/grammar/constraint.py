"""One request under a grammar: where its committed tokens stand in it, and how it ends if they cannot go on.

It follows commits, never launches, and stays with the request when that loses its row: what was committed is still true then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.grammar import GrammarMatcher
from jackfield.ipc.messages import FinishReason
from jackfield.managers.grammar.words import DEAD_END, LEFT_GRAMMAR

COMPLETE = FinishReason(type="stop")
"""The grammar is complete and nothing may follow."""


def failure(message: str) -> FinishReason:
    """An error, 500."""
    return FinishReason(type="abort", message=message, status_code=500)


class Constraint:
    """after    ids behind which the grammar begins, of tokens generated; (): at once
    over     how the request ends at the commit of the step that is in flight; its token is dropped then
    """

    def __init__(self, matcher: GrammarMatcher, after: tuple[int, ...] = ()) -> None:
        self.over: FinishReason | None = None
        self._matcher = matcher
        self._after = after
        self._seen: tuple[int, ...] = ()

    @property
    def bound(self) -> bool:
        """Whether the next token must be one that the grammar allows."""
        return not self._after

    def fill(
        self,
        bits: NDArray[np.uint32],
        *,
        known: NDArray[np.uint32],
        ends: NDArray[np.uint32],
        held: NDArray[np.uint32] | None,
    ) -> bool:
        """The mask of the next token into uint32 [words]. False if there is none: `over` says why.

        known    the ids of the vocabulary as a mask; ends: the end tokens
        held     what `min_new_tokens` holds back now, as a mask; None: nothing. Where the grammar leaves nothing else, it is
                 over, and the grammar has the last word
        """
        self._matcher.fill(bits)
        bits &= known  # ids beyond the vocabulary are nobody's
        complete = bool((bits & ends).any())
        if held is not None:
            bits &= ~held
        if bits.any():
            return True
        self.over = COMPLETE if complete else failure(DEAD_END)
        return False

    def commit(self, token: int) -> FinishReason | None:
        """A token that is no end was generated. How the request ends by it, if it does."""
        if self._after:
            self._seen = (*self._seen, token)[-len(self._after) :]
            if self._seen == self._after:
                self._after = ()
            return None
        if not self._matcher.accept(token):
            return failure(LEFT_GRAMMAR)
        return COMPLETE if self._matcher.terminated else None
