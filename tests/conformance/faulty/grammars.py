"""Grammar backends with one fault each."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from jackfield.hookspecs import CompiledGrammar, GrammarBackend, GrammarContext, GrammarError, GrammarMatcher, hookimpl
from jackfield.testing.grammar_twin import TwinBackend

VALID, MASK = "what_is_valid_passes_and_what_violates_does_not", "the_mask_says_what_accept_does"
ENDS, ROLLBACK = "end_tokens_are_allowed_where_it_is_complete", "rollback_goes_back"
WALK, ALONE = "a_masked_walk_never_leaves_the_grammar", "matchers_are_independent"
CAUGHT = {
    "good": (),
    "lets-all-pass": (VALID, "*"),
    "refuses-long-answers": (VALID, "*"),
    "forgets-a-token-in-the-mask": (MASK, "*"),
    "ends-anywhere": (ENDS, VALID),
    "never-ends": (ENDS, "*"),
    "allows-control-tokens": ("no_token_without_a_text_is_allowed", "*"),
    "keeps-old-bits": (MASK, "*"),
    "rolls-back-one": (ROLLBACK, MASK),
    "moves-on-a-refusal": ("a_refusal_changes_nothing", "*"),
    "shares-its-state": (ALONE, "*"),
    "numbers-its-bytes": ("the_bytes_are_the_grammar",),
    "has-no-size": ("the_bytes_are_the_grammar",),
    "walks-into-a-wall": (WALK, "*"),
    "takes-every-form": ("what_is_not_claimed_is_refused",),
    "raises-what-it-likes": ("b68_what_is_malformed_is_a_grammar_error",),
    "looks-at-the-vocabulary": ("check_needs_no_vocabulary_and_no_torch",),
}


class Matcher(GrammarMatcher):
    """Passes everything on."""

    def __init__(self, inner: GrammarMatcher) -> None:
        self.inner = inner
        self.count = 0

    def fill(self, mask: Any) -> None:
        self.inner.fill(mask)

    def accept(self, token: int) -> bool:
        taken = self.inner.accept(token)
        self.count += taken
        return taken

    @property
    def terminated(self) -> bool:
        return self.inner.terminated

    def rollback(self, count: int) -> None:
        self.count -= count
        self.inner.rollback(count)


class LetsAllPass(Matcher):
    def fill(self, mask: Any) -> None:
        mask[:] = 0xFFFFFFFF
        mask[-1] = 0

    def accept(self, token: int) -> bool:
        return True

    def rollback(self, count: int) -> None:
        pass

    terminated = False


class RefusesLongAnswers(Matcher):
    def accept(self, token: int) -> bool:
        return self.count < 2 and super().accept(token)


class ForgetsAToken(Matcher):
    def fill(self, mask: Any) -> None:
        super().fill(mask)
        mask[(3 + ord("b")) // 32] &= np.uint32(0xFFFFFFFF ^ (1 << (3 + ord("b")) % 32))


class EndsAnywhere(Matcher):
    def fill(self, mask: Any) -> None:
        super().fill(mask)
        mask[0] |= np.uint32(4)


class NeverEnds(Matcher):
    def fill(self, mask: Any) -> None:
        super().fill(mask)
        mask[0] &= np.uint32(0xFFFFFFFB)

    terminated = False


class AllowsControlTokens(Matcher):
    def fill(self, mask: Any) -> None:
        super().fill(mask)
        mask[0] |= np.uint32(1)


class KeepsOldBits(Matcher):
    def fill(self, mask: Any) -> None:
        old = mask.copy()
        super().fill(mask)
        mask[:-1] |= old[:-1]


class RollsBackOne(Matcher):
    def rollback(self, count: int) -> None:
        super().rollback(1)


class MovesOnARefusal(Matcher):
    def accept(self, token: int) -> bool:
        taken = super().accept(token)
        if not taken and not self.count:
            super().accept(3 + ord("a"))
        return taken


class WalksIntoAWall(Matcher):
    def fill(self, mask: Any) -> None:
        super().fill(mask)
        if self.count == 1:
            mask[:] = 0


class Grammar(CompiledGrammar):
    def __init__(self, inner: CompiledGrammar, matcher: type[Matcher], *, shared: bool, nbytes: int) -> None:
        self.nbytes = nbytes
        self._inner, self._type, self._shared = inner, matcher, shared
        self._one = matcher(inner.matcher())

    def matcher(self) -> GrammarMatcher:
        return self._one if self._shared else self._type(self._inner.matcher())


MATCHERS: dict[str, type[Matcher]] = {
    "lets-all-pass": LetsAllPass,
    "refuses-long-answers": RefusesLongAnswers,
    "forgets-a-token-in-the-mask": ForgetsAToken,
    "ends-anywhere": EndsAnywhere,
    "never-ends": NeverEnds,
    "allows-control-tokens": AllowsControlTokens,
    "keeps-old-bits": KeepsOldBits,
    "rolls-back-one": RollsBackOne,
    "moves-on-a-refusal": MovesOnARefusal,
    "walks-into-a-wall": WalksIntoAWall,
}
_NUMBERS = itertools.count()


class Backend(GrammarBackend):
    def __init__(self, name: str, context: GrammarContext) -> None:
        self._name = name
        self._vocab = context.vocab
        self._twin = TwinBackend(context.vocab, context.stop_ids)

    def check(self, spec: Any) -> None:
        if self._name == "looks-at-the-vocabulary":
            self._vocab()
        if self._name != "takes-every-form":
            self._twin.check(spec)

    def compile(self, spec: Any) -> bytes:
        try:
            compiled = self._twin.compile(spec)
        except GrammarError as error:
            if self._name == "raises-what-it-likes":
                raise ValueError(error.message) from error
            raise
        return compiled + b" " * next(_NUMBERS) if self._name == "numbers-its-bytes" else compiled

    def load(self, compiled: bytes) -> CompiledGrammar:
        return Grammar(
            self._twin.load(compiled),
            MATCHERS.get(self._name, Matcher),
            shared=self._name == "shares-its-state",
            nbytes=0 if self._name == "has-no-size" else 100,
        )


@hookimpl
def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
    return Backend(context.name, context)
