"""Which incremental decoder fits a tokenizer, read off the `decoder` section of its tokenizer.json.

Knows the decoder steps of the `tokenizers` library and what they do to a token; knows no request. A scheme is made
once and starts one decoder a request; its tables of tokens are shared by all of them and filled as tokens are seen.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jackfield.managers.text.incremental_decoder import (
    ByteFallbackDecoder,
    ByteLevelDecoder,
    IncrementalDecoder,
    WindowDecoder,
)

IdToToken = Callable[[int], str | None]
Decode = Callable[[Sequence[int]], str]

_RAW_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


class DecodingScheme(ABC):
    """`library_is_exact`: the library's own decoding is what the incremental decoders promise to add up to."""

    library_is_exact = True

    @abstractmethod
    def start(self, hidden: Collection[int], context: Sequence[int]) -> IncrementalDecoder:
        """A decoder for one text. hidden: ids that are not shown; context: ids that come before the text."""

    @abstractmethod
    def alone(self, token_id: int) -> bytes:
        """What the token stands for by itself, control tokens with their own text; b"" if there is no such token."""


class ByteLevelScheme(DecodingScheme):
    """Context is not used: bytes read the same wherever they stand."""

    def __init__(self, id_to_token: IdToToken) -> None:
        self._id_to_token = id_to_token
        self._bytes: dict[int, bytes] = {}

    def start(self, hidden: Collection[int], context: Sequence[int]) -> IncrementalDecoder:
        return ByteLevelDecoder(self.token_bytes, hidden)

    def alone(self, token_id: int) -> bytes:
        return self.token_bytes(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = _bytes_of(self._id_to_token(token_id) or "")
        return known


class PieceScheme(DecodingScheme):
    """Replace steps, byte fallback, and what sentencepiece does to the beginning of a text.

    replace       (pattern, content) in order
    byte_fallback "<0xE2>" is a byte
    strip_left    spaces dropped at the beginning of the text
    first_drops   a character that the first token loses (the Metaspace step)
    """

    def __init__(
        self,
        id_to_token: IdToToken,
        *,
        replace: Sequence[tuple[str, str]],
        byte_fallback: bool,
        strip_left: int = 0,
        first_drops: str | None = None,
    ) -> None:
        self._id_to_token = id_to_token
        self._replace = tuple(replace)
        self._byte_fallback = byte_fallback
        self._strip_left = strip_left
        self._first_drops = first_drops
        self._pieces: dict[int, str | int | None] = {}
        self.library_is_exact = not byte_fallback

    def start(self, hidden: Collection[int], context: Sequence[int]) -> IncrementalDecoder:
        begins = all(token in hidden or self.piece(token) in (None, "") for token in context)
        return ByteFallbackDecoder(
            self.piece,
            hidden,
            strip_left=self._strip_left if begins else 0,
            first_piece=self._first_piece if begins and self._first_drops else None,
        )

    def alone(self, token_id: int) -> bytes:
        piece = self.piece(token_id)
        return bytes((piece,)) if isinstance(piece, int) else (piece or "").encode("utf-8")

    def piece(self, token_id: int) -> str | int | None:
        """The token's text, or its byte, or None if there is no such token."""
        if token_id not in self._pieces:
            token = self._id_to_token(token_id)
            self._pieces[token_id] = None if token is None else self._read(token)
        return self._pieces[token_id]

    def _first_piece(self, token_id: int) -> str | int | None:
        token = self._id_to_token(token_id)
        return None if token is None else self._read(token.replace(self._first_drops or "", ""))

    def _read(self, token: str) -> str | int:
        for pattern, content in self._replace:
            token = token.replace(pattern, content)
        if self._byte_fallback and _RAW_BYTE.fullmatch(token):
            return int(token[3:5], 16)
        return token


class WindowScheme(DecodingScheme):
    """Anything else. decode: the library's decoding without skipping anything."""

    def __init__(self, id_to_token: IdToToken, decode: Decode, *, may_split: bool) -> None:
        self._id_to_token = id_to_token
        self._decode = decode
        self._may_split = may_split

    def start(self, hidden: Collection[int], context: Sequence[int]) -> IncrementalDecoder:
        def visible(token_id: int) -> bool:
            return token_id not in hidden and self._id_to_token(token_id) is not None

        return WindowDecoder(self._decode, visible, context=context, may_split=self._may_split)

    def alone(self, token_id: int) -> bytes:
        return b"" if self._id_to_token(token_id) is None else self._decode([token_id]).encode("utf-8")


def scheme_for(decoder: Mapping[str, Any] | None, id_to_token: IdToToken, decode: Decode) -> DecodingScheme:
    """The scheme for the `decoder` section of a tokenizer.json (None: it has none)."""
    steps = _flatten(decoder)
    kinds = [step.get("type") for step in steps]
    if kinds[:1] == ["ByteLevel"] and set(kinds[1:]) <= {"Fuse"}:
        return ByteLevelScheme(id_to_token)
    if kinds == ["Metaspace"]:
        mark = str(steps[0].get("replacement", "▁"))
        drops = None if steps[0].get("prepend_scheme", "always") == "never" else mark
        return PieceScheme(id_to_token, replace=[(mark, " ")], byte_fallback=False, first_drops=drops)
    pieces = _pieces(steps, id_to_token)
    if pieces is not None:
        return pieces
    return WindowScheme(id_to_token, decode, may_split=bool({"ByteLevel", "ByteFallback"} & set(kinds)))


def _pieces(steps: Sequence[Mapping[str, Any]], id_to_token: IdToToken) -> PieceScheme | None:
    """Replace*, ByteFallback, then Fuse and a Strip of the beginning or neither; None for any other order."""
    rest = list(steps)
    replace = []
    while rest and rest[0].get("type") == "Replace":
        pattern = rest.pop(0)
        text = pattern.get("pattern", {}).get("String")
        if not text:
            return None
        replace.append((str(text), str(pattern.get("content", ""))))
    if not rest or rest.pop(0).get("type") != "ByteFallback":
        return None
    strip_left = 0
    if rest and rest[0].get("type") == "Fuse":
        rest.pop(0)
        if rest and rest[0].get("type") == "Strip":
            strip = rest.pop(0)
            if strip.get("content") != " " or strip.get("stop", 0) != 0:
                return None
            strip_left = int(strip.get("start", 0))
    return None if rest else PieceScheme(id_to_token, replace=replace, byte_fallback=True, strip_left=strip_left)


def _flatten(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [step for inner in decoder.get("decoders", []) for step in _flatten(inner)]
    return [decoder]


def _byte_of_char() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 characters stand for themselves, the other bytes for U+0100 onwards, in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in printable}
    shifted = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(0x100 + i): byte for i, byte in enumerate(shifted)})
    return table


_BYTE_OF_CHAR = _byte_of_char()


def _bytes_of(token: str) -> bytes:
    """A token with a character outside the table (an added token with a space, say) is its own UTF-8."""
    try:
        return bytes([_BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return token.encode("utf-8")
