"""The command line, built from the fields of `ServerArgs`: groups and defaults in --help.

argparse only splits the line here; values are read and checked by `sources.py`, which also knows the other sources.
"""

from __future__ import annotations

import argparse
from collections.abc import Container, Mapping
from typing import Any

from jackfield.config.argument_parser import ArgumentParser
from jackfield.config.fields import FieldFacts, Shape, facts_of
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import Provenance, load_server_args, server_args_from_kwargs

__all__ = ["ArgumentParser", "add_server_args", "parse_server_args", "server_args_from_kwargs"]

STACK_DEST = "stack"

SOURCES = (
    "Each setting has a flag, an environment variable (--max-skips: JACKFIELD_MAX_SKIPS) and a key of a TOML file (--stack; "
    "max_skips); a flag goes before a variable, and a variable before the file. Plugins have flags for their options, too: "
    "--help shows those of plugins that are named beside it, by flags, variables or --stack."
)

OPTION_FLAGS_DEST = "option_flags"
"""Where the command line leaves the flags of plugins' options, which argparse does not know: `OptionFlag`s."""

OPTION_WORDS_DEST = "option_words"
"""Where it leaves the same as they were written."""


def add_server_args(parser: argparse.ArgumentParser, *, only: Container[str] | None = None) -> None:
    """All flags of ServerArgs, or those of the fields `only`, and --stack. Absent flags leave nothing in the namespace."""
    if only is None:
        parser.description = " ".join(text for text in (parser.description, SOURCES) if text)
    groups: dict[str, Any] = {}
    for facts in facts_of(ServerArgs).values():
        if only is not None and facts.name not in only:
            continue
        if facts.group not in groups:
            groups[facts.group] = parser.add_argument_group(facts.group)
        _add(groups[facts.group], facts)
    stack = facts_of(ServerArgs)["options"].group
    groups.setdefault(stack, parser).add_argument(
        "--stack",
        dest=STACK_DEST,
        metavar="FILE[#NAME]",
        default=argparse.SUPPRESS,
        help="TOML file with settings, plugin choices and options, or one of the stacks that it names; flags and JACKFIELD_* "
        "variables go before it.",
    )


def parse_server_args(namespace: argparse.Namespace, environ: Mapping[str, str]) -> tuple[ServerArgs, Provenance]:
    """ServerArgs from a parsed line, the environment and the stack file. Raises ConfigurationError."""
    given = vars(namespace)
    values = {name: given[name] for name in facts_of(ServerArgs) if name in given}
    return load_server_args(values, environ, stack_of(given), given.get(OPTION_FLAGS_DEST, ()))


def flags_again(namespace: argparse.Namespace) -> list[str]:
    """The words that give another process of ours the same settings as this parsed line; the environment is not in them."""
    given = vars(namespace)
    words: list[str] = []
    for name, facts in facts_of(ServerArgs).items():
        if name not in given:
            continue
        value = given[name]
        if facts.shape is Shape.SWITCH:
            words.append(facts.flag if value else f"--no-{facts.flag.removeprefix('--')}")
            continue
        # In one word: a value may begin with a dash.
        words += [f"{facts.flag}={text}" for text in (value if isinstance(value, list) else [value])]
    if (stack := stack_of(given)) is not None:
        words.append(f"--stack={stack}")
    return [*words, *given.get(OPTION_WORDS_DEST, ())]


def stack_of(given: Mapping[str, Any]) -> str | None:
    """The stack file that a parsed line names."""
    stack: str | None = given.get(STACK_DEST)
    return stack


def _add(group: Any, facts: FieldFacts) -> None:
    common: dict[str, Any] = {"dest": facts.name, "default": argparse.SUPPRESS, "help": help_text(facts)}
    names = (facts.flag, *facts.aliases)
    if facts.shape is Shape.SWITCH:
        group.add_argument(*names, action=argparse.BooleanOptionalAction, **common)
    elif facts.shape in (Shape.USES, Shape.NAMES, Shape.PATHS, Shape.OPTIONS):
        group.add_argument(*names, action="append", metavar=facts.metavar, **common)
    elif facts.shape is Shape.NUMBERS:
        # SGLang's command lines have several behind one flag.
        group.add_argument(*names, action="extend", nargs="+", metavar=facts.metavar, **common)
    else:
        group.add_argument(*names, metavar=facts.metavar, **common)


def help_text(facts: FieldFacts) -> str:
    """What --help says of a field."""
    default = f" (default: {facts.default_text})" if facts.default_text else ""
    return (facts.description + default).replace("%", "%%")
