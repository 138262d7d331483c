"""Chat with an engine in this process: the stack of the command line, no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.cli.chat_backend import End, Piece
from jackfield.entrypoints.cli.chat_params import Params
from jackfield.entrypoints.cli.chat_rows import stack_rows
from jackfield.entrypoints.engine import Engine
from jackfield.hookspecs.chat import ChoiceEnded, ContentDelta, ReasoningDelta


class LocalBackend:
    """Raises ConfigurationError for a stack that cannot be had."""

    def __init__(self, args: ServerArgs, provenance: Mapping[str, str]) -> None:
        self._engine = Engine.from_server_args(args, provenance)
        self.model = self._engine.model_name

    def ask(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Iterator[Piece | End]:
        finish: str | None = None
        with self._engine.chat(messages, Params.native(dict(params)), stream=True) as events:
            for event in events:
                match event:
                    case ReasoningDelta() | ContentDelta():
                        yield Piece(event.text, reasoning=isinstance(event, ReasoningDelta))
                    case ChoiceEnded():
                        finish = event.reason
            usage = events.usage()
        yield End(
            finish=finish,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
        )

    def stack(self) -> list[tuple[str, str]]:
        return stack_rows(self._engine.get_server_info())

    def close(self) -> None:
        self._engine.shutdown()
