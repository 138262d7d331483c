"""Compiled grammars and their matchers: xgrammar's own, behind the contract. The mask is written where the caller wants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CompiledGrammar, GrammarMatcher


class XgrammarMatcher(GrammarMatcher):
    """matcher: xgrammar.GrammarMatcher, which ends at its end token only; stop_ids: int [n]."""

    def __init__(self, matcher: Any, stop_ids: tuple[int, ...]) -> None:
        self.matcher = matcher
        self.stop_ids = frozenset(stop_ids)

    def fill(self, mask: NDArray[np.uint32]) -> None:
        # xgrammar leaves a mask alone that allows everything.
        mask[:] = 0xFFFFFFFF
        self.matcher.fill_next_token_bitmask(mask.view(np.int32).reshape(1, -1))

    def accept(self, token: int) -> bool:
        if token in self.stop_ids:  # it would end the matcher, which is the runtime's to do
            return False
        accepted: bool = self.matcher.accept_token(token)
        return accepted

    @property
    def terminated(self) -> bool:
        """xgrammar does not tell; its mask then allows end tokens alone."""
        return False

    def rollback(self, count: int) -> None:
        if count:
            self.matcher.rollback(count)


class XgrammarGrammar(CompiledGrammar):
    def __init__(self, new: Callable[[], Any], stop_ids: tuple[int, ...], nbytes: int) -> None:
        self.new = new
        self.stop_ids = stop_ids
        self.nbytes = nbytes

    def matcher(self) -> GrammarMatcher:
        return XgrammarMatcher(self.new(), self.stop_ids)
