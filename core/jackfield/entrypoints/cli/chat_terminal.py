"""A chat on a terminal: the prompt with its history, Ctrl-C and Ctrl-D, and answers in a view."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rich.console import Console

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli.chat_commands import COMMANDS, Chat
from jackfield.entrypoints.cli.chat_lines import read_message
from jackfield.entrypoints.cli.chat_views import MarkdownView, PlainView, View
from jackfield.managers.errors import RequestError

PROMPT, MORE = "> ", "… "
REMEMBERED = 1000
"""Lines of history."""

Read = Callable[[str], str]


def on_a_terminal(
    chat: Chat, *, plain: bool, quiet: bool, history: Path | None, read: Read = input, console: Console | None = None
) -> int:
    """The exit code. read: gives a line for a prompt; raises EOFError at the end, KeyboardInterrupt for Ctrl-C."""
    console = console or Console(markup=False, highlight=False, emoji=False)
    view: View = PlainView(console) if plain or not console.is_terminal else MarkdownView(console)
    view.say(f"{chat.backend.model} | /help tells of the commands, Ctrl-D ends the chat")
    with _history(history):
        while True:
            try:
                if _one_turn(chat, view, read, quiet):
                    return 0
            except KeyboardInterrupt:
                # At the prompt it drops the line; in an answer it was heard already.
                console.print()
            except (ConfigurationError, RequestError) as error:
                view.say(error.message, error=True)


def _one_turn(chat: Chat, view: View, read: Read, quiet: bool) -> bool:
    """True: the chat is over."""
    try:
        done = chat.take(read_message(lambda more: read(MORE if more else PROMPT)))
    except EOFError:
        view.say("")
        return True
    if done.text:
        view.say(done.text)
    if done.wants_answer:
        before = len(chat.numbers)
        try:
            with closing(chat.reply()) as pieces:  # type: ignore[type-var]
                view.show(pieces)
        except KeyboardInterrupt:
            if len(chat.numbers) == before:
                view.say("stopped before it began; /regenerate asks again")
        if len(chat.numbers) > before and not quiet:
            view.say(chat.numbers[-1].line())
    return done.over


@contextmanager
def _history(path: Path | None) -> Iterator[None]:
    """Lines of earlier chats at the arrow keys, commands at the tabulator; both only where Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    readline.set_completer(_completer)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(REMEMBERED)
    if path is not None:
        with contextlib.suppress(OSError):
            readline.read_history_file(path)
    try:
        yield
    finally:
        if path is not None:
            # A chat must not fail for its history. What people wrote is for nobody else to read.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
                readline.write_history_file(path)
                path.chmod(0o600)


def _completer(text: str, state: int) -> str | None:
    found = [f"/{name}" for name in COMMANDS if f"/{name}".startswith(text)] if text.startswith("/") else []
    return found[state] if state < len(found) else None
