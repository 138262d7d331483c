"""Which parser reads the tool calls, and which the reasoning: the named one, else the one whose marks stand in the chat template.

Knows manifests and the template's text; imports no plugin. It may be that none serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jackfield.config.names import NONE
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.selection.access import Access
from jackfield.stack.selection.checks import manifest_of
from jackfield.stack.selection.choice import Choice, Selector, flag_of, priority

KIND = KINDS["parser"]
WORDS = {"tool_calls": "tool calls", "reasoning": "the reasoning"}


@dataclass(frozen=True)
class ParserChoice:
    """choice: None if no parser serves the part; reason: why this one, or why none."""

    choice: Choice | None
    reason: str


class ParserSelection:
    """For one run. template: the chat templates in effect, "" if there is none."""

    def __init__(
        self,
        args: ServerArgs,
        template: str,
        catalogue: Catalogue,
        selector: Selector,
        provenance: Mapping[str, str],
    ) -> None:
        self._args = args
        self._template = template
        self._catalogue = catalogue
        self._selector = selector
        self._provenance = provenance

    def choose(self, part: str) -> ParserChoice:
        """part: "tool_calls" or "reasoning". Raises ConfigurationError if the named one cannot serve."""
        field = KIND.parts[part]
        if getattr(self._args, field) == NONE:
            return self._none(part, f"{self._selector.source(field)} {NONE}")
        if (named := self._args.plugin_for(KIND.name, part)) is not None:
            selector = Selector(self._catalogue, Access(deny=self._args.plugin_deny), self._provenance)
            choice = selector.named(KIND.name, named, field, lambda row: self._problems(row, part))
            self._reject(part, choice.row, lambda row: f"{named!r} was named")
            return ParserChoice(choice, choice.reason)
        if self._args.skip_tokenizer_init:
            return self._none(part, "there is no text to read (--skip-tokenizer-init)")
        if not self._template:
            return self._none(part, "the model has no chat template by which to know its format")
        return self._recognised(part)

    def reject_the_rest(self) -> None:
        """Rows that read neither: broken ones."""
        for row in self._catalogue.rows(KIND.name):
            if row.name and not any(_reads(row, part) for part in KIND.parts):
                self._selector.reject(row, row.problem or f"its features name neither {' nor '.join(KIND.parts)}")

    def _recognised(self, part: str) -> ParserChoice:
        known: list[tuple[PluginRow, tuple[str, ...]]] = []
        for row in self._rows(part):
            marks = best_marks(manifest_of(row).templates, self._template)
            if marks is not None and row.status is Status.OK and self._selector.only_named(row) is None:
                known.append((row, marks))
        if not known:
            return self._none(part, f"no parser of {WORDS[part]} knows the chat template's format", self._unfit)
        known.sort(key=lambda one: (*(-number for number in _weight(one[1])), -priority(one[0]), one[0].name))
        chosen, marks = known[0]
        reason = f"the chat template has {_listed(marks)}"
        less = {row.name: f"{chosen.name!r} knows more of the chat template than {_listed(own)}" for row, own in known}
        self._reject(part, chosen, lambda row: self._unfit(row) or less[row.name])
        return ParserChoice(Choice(chosen, reason), reason)

    def _unfit(self, row: PluginRow) -> str | None:
        """Why `auto` passes over it."""
        if (why := self._selector.only_named(row)) is not None:
            return why
        marks = best_marks(manifest_of(row).templates, self._template)
        return "the chat template has none of the marks of its format" if marks is None else None

    def _none(self, part: str, reason: str, why: Callable[[PluginRow], str | None] = lambda row: None) -> ParserChoice:
        self._reject(part, None, lambda row: why(row) or reason)
        return ParserChoice(None, reason)

    def _reject(self, part: str, chosen: PluginRow | None, why: Callable[[PluginRow], str]) -> None:
        for row in self._rows(part):
            if row is not chosen:
                self._selector.reject(row, row.problem if row.status is not Status.OK else why(row))

    def _rows(self, part: str) -> list[PluginRow]:
        return [row for row in self._catalogue.rows(KIND.name) if row.name and _reads(row, part)]

    def _problems(self, row: PluginRow, part: str) -> list[str]:
        if not _reads(row, part):
            return [f"it does not read {WORDS[part]}: it is named by {flag_of(row)}"]
        if self._args.skip_tokenizer_init:
            return ["there is no text to read (--skip-tokenizer-init)"]
        return []


def best_marks(alternatives: tuple[tuple[str, ...], ...], template: str) -> tuple[str, ...] | None:
    """The alternative of a manifest's `templates` that says most, of those all of whose marks stand in the template."""
    fitting = [marks for marks in alternatives if all(mark in template for mark in marks)]
    return max(fitting, key=_weight, default=None)


def _weight(marks: tuple[str, ...]) -> tuple[int, int]:
    """More marks say more, then longer ones."""
    return len(marks), sum(map(len, marks))


def _listed(marks: tuple[str, ...]) -> str:
    return " and ".join(map(repr, marks))


def _reads(row: PluginRow, part: str) -> bool:
    return row.manifest is not None and part in row.manifest.features
