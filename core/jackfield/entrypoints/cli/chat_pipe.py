"""A chat without a terminal: each line of the input is a question or a command, each answer is plain text. For scripts."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TextIO

from jackfield.entrypoints.cli.chat_backend import Piece
from jackfield.entrypoints.cli.chat_commands import Chat
from jackfield.entrypoints.cli.chat_lines import harmless, read_message


def through_a_pipe(chat: Chat, source: TextIO, out: TextIO, *, quiet: bool) -> int:
    """The exit code. Raises what the first failing line raises: a script that goes on would talk past it."""
    clean = harmless if out.isatty() else str

    def line(more: bool) -> str:
        read = source.readline()
        if not read:
            raise EOFError
        return read.removesuffix("\n").removesuffix("\r")

    while True:
        try:
            done = chat.take(read_message(line))
        except EOFError:
            return 0
        if done.text:
            print(clean(done.text), file=out, flush=True)
        if done.over:
            return 0
        if done.wants_answer:
            with closing(chat.reply()) as pieces:  # type: ignore[type-var]
                for piece in pieces:
                    if isinstance(piece, Piece) and not piece.reasoning:
                        out.write(clean(piece.text))
                        out.flush()
            out.write("\n")
            out.flush()
            if not quiet:
                print(chat.numbers[-1].line(), file=sys.stderr, flush=True)
