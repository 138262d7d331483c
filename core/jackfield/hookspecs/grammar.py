"""Kind `grammar`: constrains what a request may generate: to a JSON schema, a pattern, a grammar or a structural tag."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec

GRAMMAR_FORMS = ("json_schema", "regex", "ebnf", "structural_tag")
"""What `GrammarSpec.form` may be; the names of the sampling parameters too."""


@dataclass(frozen=True, kw_only=True)
class GrammarSpec:
    """What an answer has to keep to. Equal specs mean the same grammar.

    form     one of `GRAMMAR_FORMS`
    source   the schema as JSON text ('{"type": "object"}' for any object), the pattern, the grammar, or the structural tag as
             JSON text. The core has checked its size, its nesting, and that JSON is JSON
    """

    form: str
    source: str


class GrammarError(Exception):
    """The spec cannot be honoured in full. `message` reaches the client, with status 400; keyword: the JSON pointer or the
    part of the spec that is at fault, "" if none is."""

    def __init__(self, message: str, *, keyword: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.keyword = keyword


class GrammarMatcher(ABC):
    """Where one request stands in its grammar. Called from the scheduler's thread only, between two steps: each call is on the
    path of a token."""

    @abstractmethod
    def fill(self, mask: NDArray[np.uint32]) -> None:
        """Set bit (id % 32) of word (id // 32) for each token that may come next, and clear all others. uint32
        [ceil(vocab_size / 32)], not cleared before. End tokens (`GrammarContext.stop_ids`) are allowed exactly where the
        grammar is complete, other tokens exactly where `accept` would take them. A mask of zeros: nothing fits, which ends
        the request with an error."""

    @abstractmethod
    def accept(self, token: int) -> bool:
        """Go on by one token, never an end token. False, and nothing changes, if the grammar forbids it. Not called once
        `terminated`."""

    @property
    @abstractmethod
    def terminated(self) -> bool:
        """The grammar is complete, and nothing but an end token may follow: the request ends without one. A backend that
        cannot tell says False, and has the mask allow end tokens alone."""

    @abstractmethod
    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens, at most all of them."""

    def forced(self) -> Sequence[int]:
        """Tokens that must come next and are the tokenizer's own way to write that text; empty: not known."""
        return ()


class CompiledGrammar(ABC):
    """A grammar, ready for any number of requests.

    nbytes   what it holds in memory, roughly
    """

    nbytes: int

    @abstractmethod
    def matcher(self) -> GrammarMatcher:
        """A new one, at the beginning. Independent of the others."""


class GrammarBackend(ABC):
    """Made by the same hook wherever it is needed: in the main process (`check`), in the compiler's (`warm_up`, `compile`) and
    in the scheduler's (`load`). Making it, and `check`, import neither torch nor a compiler.

    A schema is honoured in full or refused: what the compiler would ignore, `check` must find.
    """

    @abstractmethod
    def check(self, spec: GrammarSpec) -> None:
        """Cheap: milliseconds for the largest spec, in time linear in it. Raises GrammarError for what this backend does not
        honour in full."""

    @abstractmethod
    def compile(self, spec: GrammarSpec) -> bytes:
        """In a process of its own, which may be killed at any time and has a limit of memory. Raises GrammarError. The bytes
        are of a closed format: whoever loads them runs no code that they hold. Equal specs give equal bytes."""

    @abstractmethod
    def load(self, compiled: bytes) -> CompiledGrammar:
        """What `compile` returned. On a thread of its own, one call at a time."""

    def warm_up(self) -> None:
        """Import and build what every compilation needs; called once in the compiler's process, at its start. Compilations
        run in forks of that process, so no thread may be left that they would wait for."""
        return None


@dataclass(frozen=True, kw_only=True)
class GrammarContext(PluginContext):
    """vocab_size   ids are 0 .. vocab_size - 1
    stop_ids     the model's end tokens
    vocab        the bytes of each id's text, b"" for special and unused ids; vocab_size of them. Call it when they are needed,
                 and once: it may take a tenth of a second
    special_ids  what each control token looks like -> its id: no text reaches such a token, so a structural tag names it
    """

    vocab_size: int
    stop_ids: tuple[int, ...]
    vocab: Callable[[], Sequence[bytes]]
    special_ids: Mapping[str, int] = field(default_factory=dict)


class GrammarSpecs:
    @hookspec
    def jackfield_grammar_backend(self, context: GrammarContext) -> GrammarBackend:  # type: ignore[empty-body]
        """Make the backend.

        Process: main, scheduler, and the compiler's own. When: once at start, in each. Cost: little; what is dear belongs
        into `warm_up` and `load`. Example:

            @hookimpl
            def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
                from my_package.grammar import MyGrammars

                return MyGrammars(context.vocab_size, context.stop_ids, context.vocab)
        """
