"""The conformance suite of kind `grammar`: what is valid passes, what violates does not, and the mask says of every token what
`accept` would. Needs no torch of itself.

The manifest's `features` say which forms are claimed: `regex`, `json_schema`, `ebnf`, `structural_tag`. For the first three the
suite has an example; set `examples` for more.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs.grammar import (
    GRAMMAR_FORMS,
    CompiledGrammar,
    GrammarBackend,
    GrammarError,
    GrammarMatcher,
    GrammarSpec,
)
from jackfield.testing.conformance.grammar_examples import EXAMPLES, MALFORMED, STOP_IDS, GrammarExample, vocabulary
from jackfield.testing.conformance.suite import Conformance

VOCAB = vocabulary()
SIZE = len(VOCAB)
WORDS = -(-SIZE // 32)
WALK = 24
"""Tokens of a random walk."""


class GrammarConformance(Conformance):
    """examples   further grammars that this backend honours, with what keeps to them and what does not
    refused    specs that `check` must refuse, because the backend would not honour them in full: (form, source, what the
               error's message or keyword must hold)
    """

    kind = "grammar"
    examples: ClassVar[Sequence[GrammarExample]] = ()
    refused: ClassVar[Sequence[tuple[str, str, str]]] = ()

    def backend(self) -> GrammarBackend:
        """A new one, as each process has its own."""
        made: GrammarBackend = self.make(vocab_size=SIZE, stop_ids=STOP_IDS, vocab=lambda: VOCAB)
        return made

    def grammar(self, example: GrammarExample) -> CompiledGrammar:
        """Compiled in one backend and loaded in another."""
        return self.backend().load(self.compiled(example))

    def compiled(self, example: GrammarExample) -> bytes:
        spec = GrammarSpec(form=example.form, source=example.source)
        self.backend().check(spec)
        compiler = self.backend()
        compiler.warm_up()
        compiled = compiler.compile(spec)
        assert isinstance(compiled, bytes), f"compile returned {type(compiled).__name__}, not bytes"
        return compiled

    def known(self) -> list[GrammarExample]:
        """All examples of what is claimed."""
        found = [EXAMPLES[form] for form in EXAMPLES if form in self.manifest().features]
        found += self.examples
        if not found:
            self.not_claimed(f"features holds none of {', '.join(EXAMPLES)}, and the suite has no examples of its own")
        return found

    @pytest.fixture
    def grammars(self) -> list[tuple[GrammarExample, CompiledGrammar]]:
        return [(example, self.grammar(example)) for example in self.known()]

    def test_what_is_valid_passes_and_what_violates_does_not(
        self, grammars: list[tuple[GrammarExample, CompiledGrammar]]
    ) -> None:
        """Each valid value can be written, whatever the tokens, and no violating text can."""
        for example, grammar in grammars:
            for ways in example.valid:
                for seed in range(3):
                    assert any(takes(grammar, cut(way.encode(), seed)) for way in ways), (
                        f"{example.source}: {ways[0]!r}"
                    )
            for text in example.violating:
                for seed in range(3):
                    assert not takes(grammar, cut(text.encode(), seed)), f"{example.source} lets {text!r} pass"

    def test_the_mask_says_what_accept_does(self, grammars: list[tuple[GrammarExample, CompiledGrammar]]) -> None:
        """Of every token of the vocabulary, at every place of a walk; what the mask held before is overwritten."""
        for example, grammar in grammars:
            for text in (ways[0] for ways in example.valid):
                matcher = grammar.matcher()
                for token in cut(text.encode(), 1):
                    held = allowed(matcher)
                    for other in range(SIZE):
                        if other in STOP_IDS:
                            continue
                        took = matcher.accept(other)
                        assert took == held[other], (
                            f"{example.source}: token {other} ({VOCAB[other]!r}) is {'' if held[other] else 'not '}in the mask "
                            f"and accept said {took}"
                        )
                        if took:
                            matcher.rollback(1)
                    if not matcher.accept(token):
                        break  # this spelling is not the one that it allows
                    if matcher.terminated:
                        break

    def test_end_tokens_are_allowed_where_it_is_complete(
        self, grammars: list[tuple[GrammarExample, CompiledGrammar]]
    ) -> None:
        """Exactly there; where nothing else may follow, it says so or allows end tokens alone."""
        for example, grammar in grammars:
            complete = 0
            for ways in example.valid:
                for way in ways:
                    matcher = grammar.matcher()
                    for i, token in enumerate(tokens := cut(way.encode(), 2)):
                        if example.form == "regex":
                            so_far = b"".join(VOCAB[t] for t in tokens[:i]).decode("utf-8", "replace")
                            want = re.fullmatch(example.source, so_far) is not None
                            assert allowed(matcher)[STOP_IDS[0]] == want, f"{example.source} after {so_far!r}"
                        if matcher.terminated or not matcher.accept(token):
                            break
                    else:
                        held = allowed(matcher)
                        assert matcher.terminated or held[STOP_IDS[0]], f"{example.source} does not end after {way!r}"
                        complete += 1
            assert complete, f"{example.source}: no valid text was taken"

    def test_no_token_without_a_text_is_allowed(self, grammars: list[tuple[GrammarExample, CompiledGrammar]]) -> None:
        """Control tokens and ids without a token never are, nor bits beyond the vocabulary."""
        for example, grammar in grammars:
            held = allowed(grammar.matcher())
            empty = [token for token in range(SIZE) if not VOCAB[token] and token not in STOP_IDS]
            assert not held[empty].any(), f"{example.source} allows {[t for t in empty if held[t]]}"

    def test_rollback_goes_back(self, grammars: list[tuple[GrammarExample, CompiledGrammar]]) -> None:
        """After a rollback of k tokens masks and answers are those of k tokens before, however far."""
        for example, grammar in grammars:
            matcher, masks, walked = grammar.matcher(), [], []
            for token in walk(grammar, seed=5):
                masks.append(allowed(matcher))
                assert matcher.accept(token)
                walked.append(token)
            for back in sorted({1, (len(walked) + 1) // 2, len(walked)}):
                matcher.rollback(back)
                assert (allowed(matcher) == masks[len(walked) - back]).all(), f"{example.source}: {back} tokens back"
                for token in walked[len(walked) - back :]:
                    assert matcher.accept(token), (
                        f"{example.source}: what was taken before {back} tokens is not any more"
                    )

    def test_a_refusal_changes_nothing(self, grammars: list[tuple[GrammarExample, CompiledGrammar]]) -> None:
        """`accept` of a token that is not allowed says so, and everything is as before."""
        for example, grammar in grammars:
            for way in (way for ways in example.valid for way in ways if takes(grammar, cut(way.encode(), 1))):
                matcher = grammar.matcher()
                before = allowed(matcher)
                for token in np.flatnonzero(~before).tolist():
                    if token not in STOP_IDS:
                        assert not matcher.accept(token)
                assert (allowed(matcher) == before).all(), f"{example.source}: a refusal changed the mask"
                rest = takes(grammar, cut(way.encode(), 1), matcher=matcher)
                assert rest, f"{example.source}: after refusals {way!r} is not taken any more"

    def test_matchers_are_independent(self, grammars: list[tuple[GrammarExample, CompiledGrammar]]) -> None:
        """Two requests of one grammar do not see each other."""
        for example, grammar in grammars:
            one, other = grammar.matcher(), grammar.matcher()
            before = allowed(other)
            for token in walk(grammar, seed=1):
                assert one.accept(token)
            assert (allowed(other) == before).all(), f"{example.source}: another matcher went on with it"

    def test_the_bytes_are_the_grammar(self) -> None:
        """Compiling twice gives equal bytes; loaded twice, in other backends, they make the same masks."""
        for example in self.known():
            compiled = self.compiled(example)
            assert compiled == self.compiled(example), f"{example.source}: two compilations differ"
            one, other = self.backend().load(compiled), self.backend().load(compiled)
            assert one.nbytes > 0, "nbytes says what a cached grammar costs"
            tokens = walk(one, seed=3)
            assert tokens == walk(other, seed=3), f"{example.source}: loaded twice, it allows other tokens"

    def test_a_masked_walk_never_leaves_the_grammar(
        self, grammars: list[tuple[GrammarExample, CompiledGrammar]]
    ) -> None:
        """Whatever is drawn from the masks is accepted, and there is something to draw until the end."""
        for example, grammar in grammars:
            for seed in range(5):
                tokens = walk(grammar, seed)
                assert takes(grammar, tokens, whole=False), f"{example.source}: {tokens} came from its masks"

    def test_what_is_not_claimed_is_refused(self) -> None:
        """`check` refuses forms that are no feature of the manifest, and what the author lists."""
        for form in GRAMMAR_FORMS:
            if form not in self.manifest().features and form not in {example.form for example in self.examples}:
                source = EXAMPLES[form].source if form in EXAMPLES else json.dumps({"type": "structural_tag"})
                with pytest.raises(GrammarError):
                    self.backend().check(GrammarSpec(form=form, source=source))
        for form, source, word in self.refused:
            with pytest.raises(GrammarError) as caught:
                self.backend().check(GrammarSpec(form=form, source=source))
            assert word in caught.value.message or word in caught.value.keyword, f"{form} {source}: {caught.value}"

    def test_b68_what_is_malformed_is_a_grammar_error(self) -> None:
        """A source that is none is refused with words, by `check` or by `compile`, and by no other exception."""
        for form in self.manifest().features:
            for source in MALFORMED.get(form, ()):
                with pytest.raises(GrammarError) as caught:
                    self.compiled(GrammarExample(form=form, source=source, valid=(), violating=()))
                assert caught.value.message, f"{form} {source!r} is refused without a word"

    def test_check_needs_no_vocabulary_and_no_torch(self) -> None:
        """The main process, which checks, neither builds the vocabulary nor imports torch for it."""
        had = "torch" in sys.modules

        def no_vocabulary() -> Any:
            raise AssertionError("check asked for the vocabulary")

        backend: GrammarBackend = self.make(vocab_size=SIZE, stop_ids=STOP_IDS, vocab=no_vocabulary)
        for example in self.known():
            backend.check(GrammarSpec(form=example.form, source=example.source))
        if had:
            self.not_here("torch had been imported before; run it alone")
        assert "torch" not in sys.modules, "check imported torch"


def allowed(matcher: GrammarMatcher) -> NDArray[np.bool_]:
    """The mask as bool [SIZE]; what was in the words before is noise."""
    words = np.full(WORDS, 0xA5A5A5A5, dtype=np.uint32)
    matcher.fill(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)
    assert not bits[SIZE:].any(), "the mask allows ids beyond the vocabulary"
    return bits[:SIZE]


def takes(
    grammar: CompiledGrammar, tokens: Sequence[int], *, whole: bool = True, matcher: GrammarMatcher | None = None
) -> bool:
    """Whether the tokens are allowed by masks and accepted, and (whole) the answer may end behind them. matcher: None: a new
    one."""
    matcher = matcher or grammar.matcher()
    for token in tokens:
        if matcher.terminated or not allowed(matcher)[token] or not matcher.accept(token):
            return False
    return not whole or matcher.terminated or bool(allowed(matcher)[STOP_IDS[0]])


def walk(grammar: CompiledGrammar, seed: int) -> list[int]:
    """Up to WALK tokens drawn from the masks; it ends with the grammar."""
    dice, matcher, tokens = random.Random(seed), grammar.matcher(), list[int]()
    while len(tokens) < WALK and not matcher.terminated:
        choices = [token for token in np.flatnonzero(allowed(matcher)).tolist() if token not in STOP_IDS]
        if not choices:
            assert allowed(matcher)[STOP_IDS[0]], f"nothing at all may follow {tokens}"
            break
        tokens.append(dice.choice(choices))
        assert matcher.accept(tokens[-1]), f"token {tokens[-1]} was in the mask, and accept refuses it"
    return tokens


def cut(text: bytes, seed: int) -> list[int]:
    """Tokens of a text: the longest at each place (seed 0), single bytes (1), else any that fit."""
    dice, at, tokens = random.Random(seed), 0, list[int]()
    while at < len(text):
        fits = [token for token, word in enumerate(VOCAB) if word and text.startswith(word, at)]
        by_length = sorted(fits, key=lambda token: (len(VOCAB[token]), token))
        token = by_length[-1] if seed == 0 else by_length[0] if seed == 1 else dice.choice(by_length)
        tokens.append(token)
        at += len(VOCAB[token])
    return tokens
