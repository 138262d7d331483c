"""The model's vocabulary as llguidance wants it. Built once a process; knows no grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jackfield.hookspecs import GrammarContext


class _Vocabulary:
    """What llguidance.TokenizerWrapper asks of a tokenizer. It is never called: grammars are compiled with `no_forcing`, as
    a mask of forced text would hold one spelling only, though the model may write any."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], special: Sequence[int], end: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special
        self.eos_token_id = end

    def __call__(self, text: Any) -> list[int]:
        return []


class Tokenizer:
    """library   llguidance.LLTokenizer
    words     of one of its masks; one more than the model's where it had to make up an end token
    """

    def __init__(self, context: GrammarContext) -> None:
        import llguidance

        texts = list(context.vocab())
        if len(texts) != context.vocab_size:
            raise ValueError(f"the vocabulary has {len(texts)} tokens, not {context.vocab_size}")
        ends = list(context.stop_ids)
        if not ends:  # llguidance cannot do without one
            ends = [len(texts)]
            texts.append(b"")
        special = [token for token, text in enumerate(texts) if not text]
        for token in special:
            texts[token] = b"<|%d|>" % token  # a name; grammars say such tokens by number
        # An end token that has a text ends here all the same.
        special = sorted({*special, *ends})
        vocabulary = llguidance.TokenizerWrapper(_Vocabulary(texts, special, ends[0]))
        self.library = llguidance.LLTokenizer(vocabulary, n_vocab=len(texts), eos_token=ends)
        self.words = -(-len(texts) // 32)
