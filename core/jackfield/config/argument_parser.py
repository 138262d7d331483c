"""argparse with our manners. Knows no flag, and imports nothing that takes time: it answers `jackfield --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from jackfield.config.errors import ConfigurationError, did_you_mean, refuse

MANY_FLAGS = 20
"""From so many flags on the first lines of --help say only that there are some: the list of all is what follows."""


class _HelpFormatter(argparse.HelpFormatter):
    """Counts the indentation of subcommands in, so that the longest name has its summary beside it too."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            longest = max(len(name) for name in action.choices)
            self._action_max_length = max(
                self._action_max_length, longest + self._current_indent + self._indent_increment
            )


class ArgumentParser(argparse.ArgumentParser):
    """No abbreviations, and a ConfigurationError that offers the nearest flag.

    Its subparsers are of this class too, so an unknown flag is compared with the flags of the right subcommand. For
    that, `parse_known_args` leaves nothing over: it refuses, as `parse_args` does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", _HelpFormatter)
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            raise refuse([self._unknown(word) for word in _flags_or_all(rest)])
        return found, rest

    def format_help(self) -> str:
        if self.usage is None and len(self._option_string_actions) > MANY_FLAGS:
            places = [_place(action) for action in self._actions if not action.option_strings]
            self.usage = " ".join(["%(prog)s", *places, "[FLAG ...]"])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{self.prog}: {message}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Subcommands and choices: argparse lists all of them, which buries the one that was meant.
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"{value!r} is not known{did_you_mean(str(value), choices)}")

    def _unknown(self, word: str) -> str:
        name = word.split("=", 1)[0]
        if not word.startswith("-"):
            return f"{self.prog}: unexpected argument {word!r}"
        meant = did_you_mean(name, self._option_string_actions) or "; --help lists all"
        return f"{self.prog}: unknown flag {name}{meant}"


def _place(action: argparse.Action) -> str:
    """A positional argument in the line of usage."""
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _flags_or_all(words: Sequence[str]) -> list[str]:
    # The words behind an unknown flag are most likely its value: naming them as well would only confuse.
    flags = [word for word in words if word.startswith("-")]
    return flags or list(words)
