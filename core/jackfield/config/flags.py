"""The command line, built from the fields of `ServerArgs`: groups, defaults in --help, and nearest names for a typo.

argparse only splits the line here; values are read and checked by `sources.py`, which also knows the other sources.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jackfield.config.errors import ConfigurationError, did_you_mean, refuse
from jackfield.config.fields import FieldFacts, Shape, facts_of
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import Provenance, load_server_args, server_args_from_kwargs

__all__ = ["ArgumentParser", "add_server_args", "parse_server_args", "server_args_from_kwargs"]

STACK_DEST = "stack"


class ArgumentParser(argparse.ArgumentParser):
    """argparse with our manners: no abbreviations, and a ConfigurationError that offers the nearest flag.

    Its subparsers are of this class too, so an unknown flag is compared with the flags of the right subcommand. For
    that, `parse_known_args` leaves nothing over: it refuses, as `parse_args` does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            raise refuse([self._unknown(word) for word in _flags_or_all(rest)])
        return found, rest

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


def add_server_args(parser: argparse.ArgumentParser) -> None:
    """All flags of ServerArgs and --stack. Absent flags leave nothing in the namespace."""
    groups: dict[str, Any] = {}
    for facts in facts_of(ServerArgs).values():
        if facts.group not in groups:
            groups[facts.group] = parser.add_argument_group(facts.group)
        _add(groups[facts.group], facts)
    groups[facts_of(ServerArgs)["options"].group].add_argument(
        "--stack",
        dest=STACK_DEST,
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="TOML file with settings, plugin choices and options; flags and JACKFIELD_* variables go before it.",
    )


def parse_server_args(namespace: argparse.Namespace, environ: Mapping[str, str]) -> tuple[ServerArgs, Provenance]:
    """ServerArgs from a parsed line, the environment and the stack file. Raises ConfigurationError."""
    given = vars(namespace)
    values = {name: given[name] for name in facts_of(ServerArgs) if name in given}
    return load_server_args(values, environ, given.get(STACK_DEST))


def _add(group: Any, facts: FieldFacts) -> None:
    common: dict[str, Any] = {"dest": facts.name, "default": argparse.SUPPRESS, "help": help_text(facts)}
    names = (facts.flag, *facts.aliases)
    if facts.shape is Shape.SWITCH:
        group.add_argument(*names, action=argparse.BooleanOptionalAction, **common)
    elif facts.shape in (Shape.USES, Shape.NAMES, Shape.OPTIONS):
        group.add_argument(*names, action="append", metavar=facts.metavar, **common)
    else:
        group.add_argument(*names, metavar=facts.metavar, **common)


def help_text(facts: FieldFacts) -> str:
    """What --help says of a field."""
    default = f" (default: {facts.default_text})" if facts.default_text else ""
    return (facts.description + default).replace("%", "%%")


def _flags_or_all(words: Sequence[str]) -> list[str]:
    # The words behind an unknown flag are most likely its value: naming them as well would only confuse.
    flags = [word for word in words if word.startswith("-")]
    return flags or list(words)
