"""The command `jackfield`: picks the subcommand, and turns errors into one message and an exit code.

0 fine, 2 refused configuration or request, 1 run-time failure; tracebacks only with --debug. A subcommand's module is
imported only when it is chosen, so that none pays for another, and `--help` pays for nothing.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from jackfield import __version__
from jackfield.config.argument_parser import ArgumentParser
from jackfield.config.errors import ConfigurationError
from jackfield.managers.errors import RequestError

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "serve": ("jackfield.entrypoints.cli.serve", "serve a model over HTTP"),
        "generate": ("jackfield.entrypoints.cli.generate", "answer one prompt with a model"),
        "chat": ("jackfield.entrypoints.cli.chat", "talk to a model in the terminal"),
        "bench": ("jackfield.entrypoints.cli.bench", "measure a stack or a server, and compare what was measured"),
        "explain": ("jackfield.entrypoints.cli.explain", "show what a run would be made of, and why"),
        "lock": ("jackfield.entrypoints.cli.lock", "write down what a run is made of, for --locked"),
        "why": ("jackfield.entrypoints.cli.why", "tell what became of a request, and why"),
        "plugins": (
            "jackfield.entrypoints.cli.plugins",
            "show which plugins are installed, and whether they are sound",
        ),
        "conformance": ("jackfield.entrypoints.cli.conformance", "test a plugin against the contract of its kind"),
        "new": ("jackfield.entrypoints.cli.new", "write the package of a new plugin"),
    }
)
"""Subcommand -> its module and summary. The module has `add_parser(subparsers)` and `run(namespace) -> exit code`."""

OF_A_RUN = ("serve", "generate", "chat", "explain", "plugins", "lock", "bench")
"""Those that take the settings of a run, and with them the flags of plugins' options."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return the exit code. Never raises but for a defect in here."""
    words = list(sys.argv[1:] if argv is None else argv)
    namespace = argparse.Namespace()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with a closed one, as some service managers do
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the life of the process
    try:
        parser, commands = _parser(words)
        namespace = _parsed(parser, commands, words)
        if namespace.command is None:
            parser.print_help(sys.stderr)
            return REFUSED
        # Messages of the program's parts go to stderr; their level is set by --log-level where a run starts.
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        code: int = importlib.import_module(COMMANDS[namespace.command][0]).run(namespace)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # argparse ends --help and --version so
        return end.code if isinstance(end.code, int) else OK
    except ConfigurationError as error:
        return _tell(error, REFUSED, error.message, namespace, words)
    except RequestError as error:
        # What was asked cannot be done (400), or the run failed on it.
        return _tell(error, REFUSED if error.status_code == 400 else FAILED, error.message, namespace, words)
    except BrokenPipeError:
        # The reader of our output has had enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if _is_refusal(error):
            return _tell(error, REFUSED, str(error), namespace, words)
        return _tell(error, FAILED, f"{type(error).__name__}: {error}", namespace, words)


def _parser(words: Sequence[str]) -> tuple[ArgumentParser, Mapping[str, ArgumentParser]]:
    """The parser of the line, and those of the subcommands; only the chosen one knows its flags."""
    parser = ArgumentParser(
        prog="jackfield",
        description="A plugin-oriented LLM serving runtime.",
        epilog="`jackfield COMMAND --help` tells more of each.",
    )
    parser.add_argument("--version", action="version", version=f"jackfield {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    chosen = _chosen(words)
    for name, (module, summary) in COMMANDS.items():
        if name == chosen:
            importlib.import_module(module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary, add_help=False)
    return parser, subparsers.choices


def _chosen(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _parsed(parser: ArgumentParser, commands: Mapping[str, ArgumentParser], words: Sequence[str]) -> argparse.Namespace:
    """The line, with the flags of plugins' options. A line without any imports nothing for them."""
    command = _chosen(words)
    namespace = argparse.Namespace()
    if command in OF_A_RUN:
        from jackfield.entrypoints.cli import option_flags

        if option_flags.looks_like_one(words):
            taken = option_flags.take(words, os.environ)
            words, namespace.option_flags, namespace.option_words = taken.words, taken.flags, taken.written
        if not {"-h", "--help"}.isdisjoint(words):
            option_flags.add_help(_innermost(commands[command], words), words, os.environ)
    return parser.parse_args(words, namespace)


def _innermost(parser: ArgumentParser, words: Sequence[str]) -> ArgumentParser:
    """The parser of the action that the line names, where a command has actions: its help is the one that is shown."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return next((action.choices[word] for word in words if word in action.choices), parser)
    return parser


def _is_refusal(error: Exception) -> bool:
    # Imported when there is an error to look at: what only looks at plugins pays for no part of the contract.
    from jackfield.hookspecs import ModelSourceError, UnsupportedModel

    return isinstance(error, ModelSourceError | UnsupportedModel)


def _tell(error: Exception, code: int, text: str, namespace: argparse.Namespace, words: Sequence[str]) -> int:
    if _wants_traceback(namespace, words):
        traceback.print_exception(error)
    else:
        # argparse's messages begin with the subcommand's name already.
        print(text if text.startswith("jackfield") else f"jackfield: {text}", file=sys.stderr)
        if code == FAILED:
            print("jackfield: run it again with --debug for the traceback", file=sys.stderr)
    return code


def _wants_traceback(namespace: Any, words: Sequence[str]) -> bool:
    """Whether --debug holds, by whatever source; by the bare words if the error is that they cannot be read."""
    from jackfield.config.flags import parse_server_args

    try:
        return parse_server_args(namespace, os.environ)[0].debug
    except ConfigurationError:
        return "--debug" in words
