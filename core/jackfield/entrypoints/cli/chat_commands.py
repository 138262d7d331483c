"""One chat: the conversation, who answers, and the commands that change them. Takes texts and gives texts; knows no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.entrypoints.cli.chat_backend import Backend, End, Piece
from jackfield.entrypoints.cli.chat_conversation import Conversation

if TYPE_CHECKING:
    from jackfield.entrypoints.cli.chat_params import Params

Clock = Callable[[], float]


@dataclass(frozen=True)
class Done:
    """What came of a command. text: for the user. wants_answer: the last question is to be answered now. over: the chat ends."""

    text: str = ""
    wants_answer: bool = False
    over: bool = False


@dataclass(kw_only=True)
class Numbers:
    """Of one answer. Seconds from the question on; None: it never came. end: None: it was stopped or failed."""

    first_s: float | None = None
    total_s: float = 0.0
    end: End | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Of the tokens after the first, whose time is the prompt's."""
        made = None if self.end is None else self.end.completion_tokens
        if made is None or made < 2 or self.first_s is None or self.total_s <= self.first_s:
            return None
        return (made - 1) / (self.total_s - self.first_s)

    def line(self) -> str:
        """For people; only what is known."""
        parts = []
        if (end := self.end) is not None and end.completion_tokens is not None:
            parts.append(_count(end.completion_tokens, "token"))
        if (rate := self.tokens_per_s) is not None:
            parts.append(f"{rate:.1f} tokens/s")
        if self.first_s is not None:
            parts.append(f"first after {self.first_s:.2f} s")
        if end is not None and end.prompt_tokens is not None:
            cached = "" if end.cached_tokens is None else f" ({end.cached_tokens} cached)"
            parts.append(_count(end.prompt_tokens, "prompt token") + cached)
        if end is None:
            parts.append("stopped")
        elif end.finish not in (None, "stop"):
            parts.append(f"ended by {end.finish}")
        return " | ".join(parts)


class Chat:
    """numbers: of all answers so far, the last one last."""

    def __init__(
        self, backend: Backend, conversation: Conversation, params: Params, clock: Clock = time.monotonic
    ) -> None:
        self.backend = backend
        self.conversation = conversation
        self.params = params
        self.numbers: list[Numbers] = []
        self._clock = clock

    def take(self, line: str) -> Done:
        """A message or a command. Raises ConfigurationError saying what is wrong with a command, and RequestError."""
        if not line.strip():
            return Done()
        if not line.startswith("/") or line.startswith("//"):
            if self.conversation.turns and self.conversation.turns[-1]["role"] == "user":
                self.conversation.turns.pop()  # It was never answered: this one takes its place.
            self.conversation.ask(line.removeprefix("/") if line.startswith("//") else line)
            return Done(wants_answer=True)
        name, _, rest = line[1:].partition(" ")
        if name not in COMMANDS:
            raise ConfigurationError(f"there is no command /{name}{did_you_mean(name, COMMANDS, noun='commands')}")
        return COMMANDS[name].act(self, rest.strip())

    def reply(self) -> Iterator[Piece | End]:
        """The answer to the last question, as it comes. What came is kept, also when it is closed early or fails in between; an
        answer that never began leaves the question, which /regenerate asks again. Raises RequestError."""
        numbers = Numbers()
        parts: list[str] = []
        began = self._clock()
        pieces = self.backend.ask(self.conversation.messages(), dict(self.params.values))
        try:
            for piece in pieces:
                if isinstance(piece, End):
                    numbers.end = piece
                else:
                    if numbers.first_s is None:
                        numbers.first_s = self._clock() - began
                    if not piece.reasoning:
                        parts.append(piece.text)
                yield piece
        finally:
            numbers.total_s = self._clock() - began
            if parts or numbers.end is not None:
                self.conversation.answer("".join(parts))
                self.numbers.append(numbers)
            if (close := getattr(pieces, "close", None)) is not None:
                close()


@dataclass(frozen=True)
class Command:
    arguments: str
    summary: str
    act: Callable[[Chat, str], Done]


def _help(chat: Chat, rest: str) -> Done:
    rows = [(f"/{name} {command.arguments}".rstrip(), command.summary) for name, command in COMMANDS.items()]
    rows += [
        ('"""', "begins and ends a message of several lines; so does \\ at the end of a line"),
        ("//...", "a message that begins with /"),
        ("Ctrl-C", "stops the answer; Ctrl-D ends the chat"),
    ]
    return Done(_aligned(rows))


def _system(chat: Chat, rest: str) -> Done:
    if rest:
        chat.conversation.system = None if rest == "none" else rest
    return Done(f"system: {chat.conversation.system or 'none'}")


def _clear(chat: Chat, rest: str) -> Done:
    chat.conversation.clear()
    return Done("The conversation is forgotten; the system text and the parameters are kept.")


def _save(chat: Chat, rest: str) -> Done:
    path = _path("save", rest)
    chat.conversation.save(path, model=chat.backend.model, params=chat.params.written())
    return Done(f"{_count(len(chat.conversation.turns), 'message')} saved to {path}")


def _load(chat: Chat, rest: str) -> Done:
    path = _path("load", rest)
    chat.conversation.load(path)
    for written in chat.conversation.params:
        chat.params.set(written)
    return Done(f"{_count(len(chat.conversation.turns), 'message')} loaded from {path}")


def _params(chat: Chat, rest: str) -> Done:
    if rest == "reset":
        chat.params.reset()
    elif rest:
        # One at a time, so that a value may have spaces.
        chat.params.set(rest)
    told = "\n".join(chat.params.written()) or "none: the server's own"
    return Done(told if rest else f"{told}\n\nknown: {', '.join(chat.params.known)}")


def _regenerate(chat: Chat, rest: str) -> Done:
    if not chat.conversation.drop_answer():
        raise ConfigurationError("there is no question to answer again")
    return Done(wants_answer=True)


def _undo(chat: Chat, rest: str) -> Done:
    question = chat.conversation.undo()
    return Done("there is nothing to take back" if question is None else f"taken back: {question}")


def _stats(chat: Chat, rest: str) -> Done:
    ends = [one.end for one in chat.numbers if one.end is not None]
    rows = [("model", chat.backend.model), ("answers", str(len(chat.numbers)))]
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
        told = [value for end in ends if (value := getattr(end, name)) is not None]
        rows.append((name.replace("_", " "), str(sum(told)) if told else "not told"))
    if chat.numbers:
        rows.append(("last answer", chat.numbers[-1].line()))
    return Done(_aligned(rows))


def _stack(chat: Chat, rest: str) -> Done:
    return Done(_aligned(chat.backend.stack()))


def _quit(chat: Chat, rest: str) -> Done:
    return Done(over=True)


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "help": Command("", "this list", _help),
        "system": Command("[TEXT|none]", "show or set the instructions for the model", _system),
        "clear": Command("", "begin a new conversation", _clear),
        "save": Command("FILE", "write the conversation down", _save),
        "load": Command("FILE", "go on with one that was saved", _load),
        "params": Command("[NAME=VALUE|NAME=|reset]", "show or set a parameter of generation", _params),
        "regenerate": Command("", "answer the last question again", _regenerate),
        "undo": Command("", "take back the last question and its answer", _undo),
        "stats": Command("", "tokens and times", _stats),
        "stack": Command("", "the plugins that serve", _stack),
        "quit": Command("", "end the chat", _quit),
    }
)


def _path(name: str, rest: str) -> Path:
    if not rest:
        raise ConfigurationError(f"/{name} needs the name of a file")
    return Path(rest).expanduser()


def _aligned(rows: list[tuple[str, str]]) -> str:
    width = max(len(left) for left, _ in rows)
    return "\n".join(f"{left.ljust(width)}  {right}" for left, right in rows)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
