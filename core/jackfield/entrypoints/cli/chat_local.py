"""Chat with an engine in this process: the stack of the command line, no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.cli.chat_backend import End, Piece
from jackfield.entrypoints.cli.chat_params import Params
from jackfield.entrypoints.cli.chat_rows import stack_rows
from jackfield.entrypoints.engine import Engine


class LocalBackend:
    """Raises ConfigurationError for a stack that cannot be had."""

    def __init__(self, args: ServerArgs, provenance: Mapping[str, str]) -> None:
        self._engine = Engine.from_server_args(args, provenance)
        self.model = self._engine.model_name

    def ask(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Iterator[Piece | End]:
        ids = self._engine.apply_chat_template(messages)
        shown = 0
        meta: dict[str, Any] = {}
        with self._engine.generate(input_ids=ids, sampling_params=Params.native(dict(params)), stream=True) as answers:
            for answer in answers:
                text, meta = answer["text"], answer["meta_info"]
                if len(text) > shown:
                    yield Piece(text[shown:])
                    shown = len(text)
        yield End(
            finish=meta["finish_reason"]["type"],
            prompt_tokens=meta["prompt_tokens"],
            cached_tokens=meta["cached_tokens"],
            completion_tokens=meta["completion_tokens"],
        )

    def stack(self) -> list[tuple[str, str]]:
        return stack_rows(self._engine.get_server_info())

    def close(self) -> None:
        self._engine.shutdown()
