"""Which tokens may come, of a vocabulary of words."""

from __future__ import annotations

import numpy as np
from choice_grammar.backend import ChoiceBackend

from jackfield.hookspecs import GrammarMatcher, GrammarSpec

VOCAB = [b"", b'"', b"yes", b"no", b"y", b"es", b'"yes"', b"no"]


def allowed(matcher: GrammarMatcher) -> list[int]:
    mask = np.full(1, 0xFFFFFFFF, dtype=np.uint32)
    matcher.fill(mask)
    return [token for token in range(32) if int(mask[0]) >> token & 1]


def test_a_token_may_come_where_it_begins_what_is_left() -> None:
    backend = ChoiceBackend(lambda: VOCAB, [0])
    matcher = backend.load(backend.compile(GrammarSpec(form="json_schema", source='{"enum": ["yes", "no"]}'))).matcher()
    assert allowed(matcher) == [1, 6]
    assert matcher.accept(1)
    assert allowed(matcher) == [2, 3, 4, 7]
    assert matcher.accept(4)
    assert not matcher.accept(3)
    assert matcher.accept(5)
    assert matcher.accept(1)
    assert (matcher.terminated, allowed(matcher)) == (True, [0])
    matcher.rollback(4)
    assert allowed(matcher) == [1, 6]
