"""Keeps the text of a client from becoming control tokens when it passes through a chat template.

A tokenizer reads the text of a special token as that token, wherever it stands: "<|im_end|>" in a message would end the
message. So, before the template sees it, each such text in what the client wrote is replaced by one character of its own
that occurs nowhere else; the template moves it about like any other character, and when the prompt is tokenized the
character stands for ordinary text again (`Tokenizer.encode_literals`). A client's text without special tokens goes through
untouched, so its tokens cannot differ.

Knows no template and no tokenizer, only which texts are special.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

PRIVATE = range(0xF0000, 0xFFFFE)
"""A private-use plane of Unicode: no text of a model's vocabulary stands there."""


class LiteralText:
    """specials: the texts that would become control tokens. One per prompt."""

    def __init__(self, specials: Iterable[str]) -> None:
        # The longest first, as one special token's text may begin with another's.
        self._specials = sorted((text for text in specials if text), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._specials))) if self._specials else None
        self._characters: dict[str, str] = {}
        self._used: set[str] = set()

    @property
    def literals(self) -> Mapping[str, str]:
        """Character -> the text that it stands for; empty if nothing had to be replaced."""
        return {character: text for text, character in self._characters.items()}

    def hide(self, *values: Any) -> list[Any]:
        """Copies of JSON values with the special texts in their strings replaced (keys of objects are left alone)."""
        for text in _strings(values):
            self._used.update(character for character in text if ord(character) in PRIVATE)
        return [self._hidden(value) for value in values]

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {key: self._hidden(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return self._parts([self._hidden(item) for item in value])
        return value

    def _text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._character(found.group()), text)

    def _parts(self, items: list[Any]) -> list[Any]:
        """A template may write the text parts of a content without anything between them, so that the end of one and the
        beginning of the next make up a special text: such an end is replaced as well."""
        for item in items[:-1]:
            if isinstance(item, dict) and isinstance(text := item.get("text"), str) and (end := self._beginning(text)):
                item["text"] = text.removesuffix(end) + self._character(end)
        return items

    def _beginning(self, text: str) -> str:
        """The longest end of `text` with which a special text begins."""
        for length in range(min(len(text), len(self._specials[0]) - 1 if self._specials else 0), 0, -1):
            end = text[-length:]
            if any(special.startswith(end) for special in self._specials):
                return end
        return ""

    def _character(self, text: str) -> str:
        if text not in self._characters:
            taken = self._used | set(self._characters.values())
            self._characters[text] = next(chr(code) for code in PRIVATE if chr(code) not in taken)
        return self._characters[text]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _strings(item)
