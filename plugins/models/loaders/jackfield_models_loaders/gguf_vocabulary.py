"""The vocabulary of a GGUF file: tokens, their kinds, the special ones. Knows no tokenizer model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jackfield_models_loaders.gguf_metadata import Metadata

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""`tokenizer.ggml.token_type`."""

_ROLES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
    "sep_token": "seperator",  # the format's own spelling
    "mask_token": "mask",
}


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """tokens: texts by id; types: kinds by id; ids: text -> id, the unused left out."""

    tokens: list[str]
    types: list[int]
    ids: dict[str, int]

    def added_tokens_json(self) -> list[dict[str, Any]]:
        """The tokens that are found in the text before anything else cuts it, as `tokenizer.json` lists them."""
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": token, "content": self.tokens[token], **flags, "special": kind != USER_DEFINED}
            for token, kind in enumerate(self.types)
            if kind in (UNKNOWN, CONTROL, USER_DEFINED) and self.tokens[token]
        ]


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Raises ModelSourceError for missing tokens and for two tokens of the same text."""
    tokens = metadata.texts("tokenizer.ggml.tokens")
    if not tokens:
        metadata.fail("holds no tokenizer (tokenizer.ggml.tokens); use a file that carries its vocabulary")
    types = metadata.integers("tokenizer.ggml.token_type")
    if types is None:
        types = [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        metadata.fail(f"has {len(tokens)} tokens but {len(types)} token types; fetch the file again")
    ids: dict[str, int] = {}
    for token, (text, kind) in enumerate(zip(tokens, types, strict=True)):
        if kind == UNUSED:  # padding of the embedding table; no text may become one
            continue
        if ids.setdefault(text, token) != token:
            metadata.fail(f"has the token {text!r} twice (ids {ids[text]} and {token}); convert the model again")
    return Vocabulary(tokens=tokens, types=types, ids=ids)


def special_tokens(metadata: Metadata, vocabulary: Vocabulary) -> dict[str, str]:
    """Role -> token text. Raises ModelSourceError for an id outside the vocabulary."""
    result = {}
    for role, key in _ROLES.items():
        token = metadata.integer(f"tokenizer.ggml.{key}_token_id")
        if token is None:
            continue
        if not 0 <= token < len(vocabulary.tokens):
            metadata.fail(f"names {token} as {role}, but has {len(vocabulary.tokens)} tokens; convert the model again")
        result[role] = vocabulary.tokens[token]
    return result
