"""Token ids to text, one token at a time, at a flat cost per token.

Three ways, for the three kinds of vocabulary: bytes (byte-level BPE), pieces with byte fallback (sentencepiece), and a
sliding window for everything else. All keep one promise: joined pushes and the flush are the decoding of all ids.
Knows tokens, bytes and text; which way fits a tokenizer is `decoding_scheme`'s business, and stopping is `stop`'s.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence

REPLACEMENT = "\ufffd"

MAX_PENDING = 8
"""A window gives up waiting for a character after so many tokens: UTF-8 has at most four bytes a character."""


class IncrementalDecoder(ABC):
    """One text. `push` returns what the token adds; what may still change (an incomplete character) is held back."""

    @abstractmethod
    def push(self, token_id: int) -> str:
        """The text that is certain now; "" if the token adds none yet. An id outside the vocabulary has no text."""

    @abstractmethod
    def flush(self) -> str:
        """What is still held back, as the full decoding shows it. The decoder is done after it."""


class ByteLevelDecoder(IncrementalDecoder):
    """Every token is bytes; characters are what UTF-8 makes of them. A genuine U+FFFD is three bytes like any other."""

    def __init__(self, token_bytes: Callable[[int], bytes], hidden: Collection[int] = ()) -> None:
        self._token_bytes = token_bytes
        self._hidden = hidden
        # "replace" marks each maximal invalid subpart once, as the tokenizers library's lossy conversion does.
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        return self._utf8.decode(self._token_bytes(token_id))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class ByteFallbackDecoder(IncrementalDecoder):
    """Every token is text, or one raw byte ("<0xE2>") of a character that the vocabulary lacks.

    Within a run of byte tokens valid characters flow at once, and each byte that is no part of one becomes one U+FFFD,
    as sentencepiece does it. (The tokenizers library marks all bytes of a run as soon as one is bad; a text that ends in
    the middle of its fifth emoji would lose the other four.)

    strip_left   so many leading spaces of the text are dropped: sentencepiece marks the beginning of a word with one
    first_piece  how the first visible token reads, if it reads differently from the others
    """

    def __init__(
        self,
        piece: Callable[[int], str | int | None],
        hidden: Collection[int] = (),
        *,
        strip_left: int = 0,
        first_piece: Callable[[int], str | int | None] | None = None,
    ) -> None:
        self._piece = piece
        self._hidden = hidden
        self._strip_left = strip_left
        self._first_piece = first_piece
        self._bytes = b""

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        piece = self._piece(token_id)
        if piece is None:
            return ""
        if self._first_piece is not None:
            piece = self._first_piece(token_id)
            self._first_piece = None
        if isinstance(piece, int):
            text, self._bytes = decode_bytewise(self._bytes + bytes((piece,)), final=False)
            return self._stripped(text)
        if self._bytes:
            text, self._bytes = decode_bytewise(self._bytes, final=True)
            return self._stripped(text + (piece or ""))
        return self._stripped(piece or "")

    def flush(self) -> str:
        text, self._bytes = decode_bytewise(self._bytes, final=True)
        return self._stripped(text)

    def _stripped(self, text: str) -> str:
        if not text or not self._strip_left:
            return text
        kept = 0
        while kept < len(text) and self._strip_left and text[kept] == " ":
            kept += 1
            self._strip_left -= 1
        if kept < len(text):
            self._strip_left = 0
        return text[kept:]


class WindowDecoder(IncrementalDecoder):
    """For decoders that look at neighbours: decode a window of the last tokens, and show by how much it grew.

    The window begins one growth back, so that what a token looks like after another is right (spaces between words,
    continuation marks). Tokens without text never enter it: they would turn the next one into a beginning.

    decode       ids -> text; called with a handful of ids
    visible      False for ids that have no text here (hidden or outside the vocabulary)
    context      ids that came before the text
    may_split    a character may be spread over tokens: hold back a growth that ends in U+FFFD
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        visible: Callable[[int], bool],
        *,
        context: Sequence[int] = (),
        may_split: bool = False,
    ) -> None:
        self._decode = decode
        self._visible = visible
        self._may_split = may_split
        self._window = [token for token in context if visible(token)]
        self._settled = len(self._window)
        self._shown = len(decode(self._window)) if self._window else 0

    def push(self, token_id: int) -> str:
        if not self._visible(token_id):
            return ""
        self._window.append(token_id)
        text = self._decode(self._window)
        patient = len(self._window) - self._settled < MAX_PENDING
        unfinished = self._may_split and patient and text.endswith(REPLACEMENT)
        if unfinished:
            text = text.rstrip(REPLACEMENT)
        fresh = text[self._shown :]
        self._shown = max(self._shown, len(text))
        if not unfinished and (fresh or not patient):
            self._window = self._window[self._settled :]
            self._settled = len(self._window)
            self._shown = len(self._decode(self._window))
        return fresh

    def flush(self) -> str:
        text = self._decode(self._window) if self._window else ""
        fresh = text[self._shown :]
        self._shown = len(text)
        return fresh


def decode_bytewise(data: bytes, *, final: bool) -> tuple[str, bytes]:
    """(text, rest): the characters of `data`, one U+FFFD for each byte that is no part of one. rest: the bytes of a
    character that may still be completed; empty if `final`."""
    text = []
    while data:
        try:
            some, used = codecs.utf_8_decode(data, "strict", final)
        except UnicodeDecodeError as error:
            text.append(data[: error.start].decode("utf-8"))
            text.append(REPLACEMENT * (error.end - error.start))
            data = data[error.end :]
            continue
        text.append(some)
        return "".join(text), data[used:]
    return "".join(text), b""
