"""Options of plugins as flags: `--schedule-policy.lpm.max-queue 64`, typed by the plugin's own options model and shown in --help.

The word before the instance is the flag or the kind that names the plugin. The models are described in a child process, so that
the command line imports no plugin; a line without such a flag, and --help that names no plugin, starts none.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jackfield.config.errors import ConfigurationError, did_you_mean, nearest, refuse
from jackfield.entrypoints.cli.named_plugins import Named, before_positionals, read_named
from jackfield.hookspecs.kinds import KINDS, Kind
from jackfield.stack.names import normalise_name

if TYPE_CHECKING:
    from jackfield.config.sources import OptionFlag
    from jackfield.stack.discovery.catalogue import PluginRow
    from jackfield.stack.loading.option_schema import OptionField

_FLAG = re.compile(
    r"--(?P<no>no-)?(?P<word>[A-Za-z][\w-]*)\.(?P<instance>[^.=]+)\.(?P<path>[^=]+?)(?P<value>=.*)?", re.DOTALL
)

_PHASE = re.compile(r"^(prefill|decode)[-_](?=attention)")


@dataclass(frozen=True)
class _Written:
    """One flag as it stands on the line: words [start, start + 1), its value not counted."""

    start: int
    flag: str
    negated: bool
    word: str
    instance: str
    path: str
    value: str | None


@dataclass(frozen=True)
class Taken:
    """The line without the flags, what they said, and the words that said it."""

    words: list[str]
    flags: tuple[OptionFlag, ...]
    written: tuple[str, ...]


def looks_like_one(words: Sequence[str]) -> bool:
    """Whether anything on the line has the form of such a flag. Imports nothing."""
    return any(_FLAG.fullmatch(word) for word in before_positionals(words))


def take(words: Sequence[str], environ: Mapping[str, str]) -> Taken:
    """Read the flags out of the line. Raises ConfigurationError naming every one that is not known or has no good value."""
    from jackfield.config.sources import OptionFlag

    written = _written(words)
    lines = _Lines(read_named(words, environ))
    problems: list[str] = []
    flags: dict[tuple[str, tuple[str, ...]], OptionFlag] = {}
    used: set[int] = set()
    lines.describe({(item.word, item.instance) for item in written})
    for item in written:
        used.add(item.start)
        try:
            key, field = lines.find(item)
            value, taken = _value(item, field, words)
        except ValueError as error:
            problems.append(str(error))
            used |= {item.start + 1} if item.value is None and _follows(words, item.start) else set()
            continue
        used |= set(range(item.start + 1, item.start + 1 + taken))
        before = flags.get((key, field.path))
        if before is not None and field.is_list and isinstance(before.value, list) and isinstance(value, list):
            value = [*before.value, *value]
        flags[key, field.path] = OptionFlag(key=key, path=field.path, value=value, source=item.flag)
    if problems:
        raise refuse(problems)
    return Taken(
        words=[word for number, word in enumerate(words) if number not in used],
        flags=tuple(flags.values()),
        written=tuple(words[number] for number in sorted(used)),
    )


def add_help(parser: argparse.ArgumentParser, words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Groups for --help: one for each plugin that this line, the environment or the stack file names and that has options."""
    try:
        named = read_named(words, environ)
        instances = named.instances()
        if not instances:
            return
        lines = _Lines(named)
        lines.describe({(KINDS[kind].field, instance) for kind, instance in instances})
    except ConfigurationError as error:
        # Whoever asks for help gets it; why a part is missing stands where it would be.
        parser.epilog = f"The options of the named plugins cannot be shown: {error}"
        return
    for kind, instance in instances:
        row, fields, problem = lines.described[kind, instance]
        group = parser.add_argument_group(f"Options of {kind} {instance!r} ({row.origin})")
        if problem:
            group.description = f"They cannot be shown: {problem}"
        elif not fields:
            group.description = "It has none."
        for field in fields:
            flag = _spelt(KINDS[kind], instance, field.path)
            text = f"{field.description} {_facts(field)}".strip().replace("%", "%%")
            if field.is_switch:
                group.add_argument(flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
            else:
                metavar = "{" + ",".join(field.choices) + "}" if field.choices else field.path[-1].upper()
                group.add_argument(flag, metavar=metavar.replace("%", "%%"), help=text)


class _Lines:
    """The plugins that flags may speak of, and their options once they were described."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self.described: dict[tuple[str, str], tuple[PluginRow, tuple[OptionField, ...], str]] = {}

    def describe(self, wanted: set[tuple[str, str]]) -> None:
        """Ask one child for all models. Words and instances that mean nothing are left for `find` to tell."""
        from jackfield.stack.diagnosis.inspection import describe_models_in_child
        from jackfield.stack.loading.option_schema import option_fields

        rows = {}
        for word, instance in sorted(wanted):
            kind = _kind(word)
            row = None if kind is None else self._named.row(kind.name, instance)
            if kind is not None and row is not None:
                rows[kind.name, normalise_name(instance)] = row
        for key, (schema, problem) in zip(rows, describe_models_in_child(list(rows.values())), strict=True):
            self.described[key] = rows[key], option_fields(schema), problem

    def find(self, item: _Written) -> tuple[str, OptionField]:
        """ "kind.instance" and the option. Raises ValueError."""
        kind = _kind(item.word)
        if kind is None:
            if (phased := _kind(_PHASE.sub("", item.word))) is not None:
                flag = _spelt(phased, item.instance, (item.path,))
                raise ValueError(
                    f"unknown flag {item.flag}: the options of a plugin are the same in every phase that it serves: {flag}"
                )
            words = [spelling for kind in KINDS.values() for spelling in _words(kind)]
            raise ValueError(
                f"unknown flag {item.flag}: there is no kind {item.word!r}{did_you_mean(item.word, words)}"
            )
        key = (kind.name, normalise_name(item.instance))
        if key not in self.described:
            known = self._named.known(kind.name)
            raise ValueError(
                f"unknown flag {item.flag}: there is no {kind.name} plugin or instance {item.instance!r}"
                f"{did_you_mean(item.instance, known, noun='there are')}"
            )
        row, fields, problem = self.described[key]
        if problem:
            raise ValueError(f"{item.flag}: {problem}")
        wanted = _folded(item.path)
        for field in fields:
            if _folded(".".join(field.path)) == wanted:
                return f"{kind.name}.{key[1]}", field
        choices = [_spelt(kind, key[1], field.path, word=item.word) for field in fields]
        who = f"{row.kind} plugin {row.name!r} ({row.origin})"
        if not choices:
            raise ValueError(f"unknown flag {item.flag}: {who} has no options")
        near = nearest(item.path, [".".join(field.path) for field in fields])
        meant = [_spelt(kind, key[1], tuple(name.split(".")), word=item.word) for name in near]
        raise ValueError(f"unknown flag {item.flag}{did_you_mean(item.flag, meant or choices, noun=f'of {who}')}")


def _written(words: Sequence[str]) -> list[_Written]:
    found = []
    for number, word in enumerate(before_positionals(words)):
        match = _FLAG.fullmatch(word)
        if match is not None:
            value = match["value"]
            flag = word if value is None else word[: -len(value)]
            found.append(
                _Written(
                    start=number,
                    flag=flag,
                    negated=match["no"] is not None,
                    word=match["word"],
                    instance=match["instance"],
                    path=match["path"],
                    value=None if value is None else value[1:],
                )
            )
    return found


def _value(item: _Written, field: OptionField, words: Sequence[str]) -> tuple[Any, int]:
    """The value, and how many words it took beside the flag's own. Raises ValueError."""
    if field.is_switch:
        if item.value is not None:
            raise ValueError(f"{item.flag} is a switch and takes no value: write {item.flag} or the same with --no-")
        return not item.negated, 0
    if item.negated:
        name = ".".join(field.path)
        raise ValueError(f"unknown flag {item.flag}: the option {name!r} is no switch, it takes {field.type_text}")
    if item.value is None and not _follows(words, item.start):
        raise ValueError(f"{item.flag} needs a value: {field.type_text}")
    text = words[item.start + 1] if item.value is None else item.value
    try:
        return field.parse(text), int(item.value is None)
    except ValueError as error:
        raise ValueError(f"{item.flag}: {error}") from None


def _follows(words: Sequence[str], number: int) -> bool:
    """Whether the next word can be a value; a negative number can."""
    return number + 1 < len(words) and not words[number + 1].startswith("--")


def _kind(word: str) -> Kind | None:
    return next((kind for kind in KINDS.values() if word.replace("_", "-") in _words(kind)), None)


def _words(kind: Kind) -> tuple[str, ...]:
    fields = (kind.field,) if kind.has_common_field else kind.fields
    return tuple(dict.fromkeys(word.replace("_", "-") for word in (*fields, kind.name)))


def _folded(path: str) -> str:
    return path.replace("-", "_")


def _spelt(kind: Kind, instance: str, path: Sequence[str], *, word: str | None = None) -> str:
    return "--" + ".".join((word or kind.field.replace("_", "-"), instance, *(step.replace("_", "-") for step in path)))


def _facts(field: OptionField) -> str:
    if field.required:
        return f"({field.type_text}; required)"
    default = field.default
    told = "none" if default is None else ("on" if default else "off") if isinstance(default, bool) else default
    kind = "" if field.is_switch or field.choices else f"{field.type_text}; "
    return f"({kind}default: {told})"
