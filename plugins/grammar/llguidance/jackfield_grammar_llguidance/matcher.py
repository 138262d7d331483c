"""Compiled grammars and their matchers: llguidance's own, behind the contract. The mask is written where the caller wants it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CompiledGrammar, GrammarMatcher

logger = logging.getLogger(__name__)


class LlguidanceMatcher(GrammarMatcher):
    """matcher: llguidance.LLMatcher. end_only: words of a mask that allows the end tokens alone."""

    def __init__(self, matcher: Any, words: int) -> None:
        self.matcher = matcher
        # One more word where the made-up end token of a model without any has no room in the caller's mask.
        self.room: NDArray[np.uint32] = np.zeros(words, dtype=np.uint32)

    def fill(self, mask: NDArray[np.uint32]) -> None:
        into = mask if mask.size == self.room.size and mask.flags.c_contiguous else self.room
        self.matcher.unsafe_compute_mask_ptr(into.ctypes.data, into.nbytes)
        if self.matcher.is_error():
            # A limit of the parser's: nothing may follow, which ends the request with an error.
            logger.warning("llguidance gave up: %s", self.matcher.get_error().partition("\n")[0])
            mask[:] = 0
        elif into is not mask:
            mask[:] = into[: mask.size]

    def accept(self, token: int) -> bool:
        accepted: int = self.matcher.try_consume_tokens([token])
        return accepted == 1

    @property
    def terminated(self) -> bool:
        stopped: bool = self.matcher.is_stopped() and not self.matcher.is_error()
        return stopped

    def rollback(self, count: int) -> None:
        if count and not self.matcher.rollback(count):
            raise ValueError(f"{count} tokens cannot be taken back: {self.matcher.get_error()}")


class LlguidanceGrammar(CompiledGrammar):
    def __init__(self, matcher: Any, words: int, nbytes: int) -> None:
        self.first = matcher
        self.words = words
        self.nbytes = nbytes

    def matcher(self) -> GrammarMatcher:
        return LlguidanceMatcher(self.first.deep_copy(), self.words)
