"""Answers that are one of a list. A step costs as much as the texts that are still possible are long, whatever the size of the
vocabulary: their beginnings are looked up among the tokens, not the tokens among them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import CompiledGrammar, GrammarBackend, GrammarError, GrammarMatcher, GrammarSpec


def choices_of(spec: GrammarSpec) -> list[str]:
    """The JSON texts of the list. Raises GrammarError for anything but {"enum": [...]}."""
    if spec.form != "json_schema":
        raise GrammarError(f"{spec.form} is not known here, only json_schema with enum")
    try:
        schema: Any = json.loads(spec.source)
    except ValueError as error:
        raise GrammarError(f"no JSON: {error}") from None
    for keyword in schema if isinstance(schema, dict) else ():
        if keyword != "enum":
            raise GrammarError(f"{keyword!r} is not known here, only enum", keyword=f"/{keyword}")
    values = schema.get("enum") if isinstance(schema, dict) else None
    if not isinstance(values, list) or not values:
        raise GrammarError("enum has to be a list of values", keyword="/enum")
    return list(dict.fromkeys(json.dumps(value, ensure_ascii=False) for value in values))


class ChoiceBackend(GrammarBackend):
    def __init__(self, vocab: Callable[[], Sequence[bytes]], stop_ids: Sequence[int]) -> None:
        self._vocab = vocab
        self._stop_ids = stop_ids
        self._tokens: Mapping[bytes, list[int]] | None = None

    def check(self, spec: GrammarSpec) -> None:
        choices_of(spec)

    def compile(self, spec: GrammarSpec) -> bytes:
        return json.dumps(choices_of(spec)).encode()

    def load(self, compiled: bytes) -> CompiledGrammar:
        if self._tokens is None:
            tokens = defaultdict[bytes, list[int]](list)
            for token, text in enumerate(self._vocab()):
                if text:
                    tokens[text].append(token)
            self._tokens = dict(tokens)
        return Choices([text.encode() for text in json.loads(compiled)], self._tokens, self._stop_ids)


class Choices(CompiledGrammar):
    def __init__(self, texts: Sequence[bytes], tokens: Mapping[bytes, list[int]], stop_ids: Sequence[int]) -> None:
        self.texts = texts
        self.tokens = tokens
        self.texts_of = {token: text for text, same in tokens.items() for token in same}
        self.stop_ids = stop_ids
        self.nbytes = 1 + sum(map(len, texts))

    def matcher(self) -> GrammarMatcher:
        return ChoiceMatcher(self)


class ChoiceMatcher(GrammarMatcher):
    """What is left of the texts that are still possible, after each token."""

    def __init__(self, grammar: Choices) -> None:
        self._grammar = grammar
        self._left = [list(grammar.texts)]

    def _next(self) -> Iterator[int]:
        beginnings = {text[:end] for text in self._left[-1] for end in range(1, len(text) + 1)}
        for beginning in beginnings:
            yield from self._grammar.tokens.get(beginning, ())
        if b"" in self._left[-1]:
            yield from self._grammar.stop_ids

    def fill(self, mask: NDArray[np.uint32]) -> None:
        mask[:] = 0
        ids = np.fromiter(self._next(), dtype=np.int64)
        np.bitwise_or.at(mask, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))

    def accept(self, token: int) -> bool:
        more = self._grammar.texts_of.get(token, b"")
        left = [text[len(more) :] for text in self._left[-1] if more and text.startswith(more)]
        if left:
            self._left.append(left)
        return bool(left)

    @property
    def terminated(self) -> bool:
        return self._left[-1] == [b""]

    def rollback(self, count: int) -> None:
        del self._left[len(self._left) - count :]
