"""What has been said: a system text, turns, and the file that holds them. Knows no model and no terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError

FORMAT = "jackfield-chat-1"


class Conversation:
    """turns: messages of user and assistant, in turn; the last may be a question without an answer. params: NAME=VALUE texts that
    a loaded file had."""

    def __init__(self) -> None:
        self.system: str | None = None
        self.turns: list[dict[str, str]] = []
        self.params: list[str] = []

    def messages(self) -> list[dict[str, str]]:
        """As a model is sent them."""
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self.turns]

    def ask(self, text: str) -> None:
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        self.turns.append({"role": "assistant", "content": text})

    def clear(self) -> None:
        self.turns.clear()

    def undo(self) -> str | None:
        """Take back the last question and its answer; the question, None if there is none."""
        self.drop_answer()
        return self.turns.pop()["content"] if self.turns else None

    def drop_answer(self) -> bool:
        """Take back the last answer. True: there is a question that wants one."""
        if self.turns and self.turns[-1]["role"] == "assistant":
            self.turns.pop()
        return bool(self.turns)

    def save(self, path: Path, *, model: str, params: list[str]) -> None:
        """Raises ConfigurationError."""
        whole = {"format": FORMAT, "model": model, "system": self.system, "params": params, "messages": self.turns}
        try:
            path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error

    def load(self, path: Path) -> None:
        """Replace what is here. Raises ConfigurationError, and then nothing has changed."""
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from error
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise ConfigurationError(f"{path} is no conversation that /save wrote: it has no format {FORMAT!r}")
        system, turns, params = whole.get("system"), whole.get("messages"), whole.get("params", [])
        if not _is_text(system) or not isinstance(turns, list) or not all(map(_is_turn, turns)):
            raise ConfigurationError(f"{path}: system must be a text or null, and messages have a role and a content")
        if not isinstance(params, list) or not all(isinstance(one, str) for one in params):
            raise ConfigurationError(f"{path}: params must be a list of NAME=VALUE")
        self.system, self.params = system, params
        self.turns = [{"role": turn["role"], "content": turn["content"]} for turn in turns]


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_turn(value: Any) -> bool:
    return (
        isinstance(value, dict) and value.get("role") in ("user", "assistant") and isinstance(value.get("content"), str)
    )
