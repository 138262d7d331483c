"""What a chat asks of whoever answers: an engine in this process or a server. Knows no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Piece:
    """New text of the answer. reasoning: it is what the model thinks before it answers, and no part of the conversation."""

    text: str
    reasoning: bool = False


@dataclass(frozen=True, kw_only=True)
class End:
    """How the answer ended. Counts in tokens, None: it was not told. finish: as the server words it."""

    finish: str | None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class Backend(Protocol):
    model: str

    def ask(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Iterator[Piece | End]:
        """The answer as it comes; the last one is the End. Closing the iterator ends the request. Raises RequestError with the
        words of whoever refused it."""
        ...

    def stack(self) -> list[tuple[str, str]]:
        """What serves: (kind, plugin), and what belongs to it. Raises RequestError if it cannot be had."""
        ...

    def close(self) -> None: ...
