"""Structural tags: free text with parts in it that keep to a schema, a pattern or a grammar. xgrammar's JSON, read into a tree.

    {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<call"], "tags": [
        {"type": "tag", "begin": "<call>", "content": {"type": "json_schema", "json_schema": {...}}, "end": "</call>"}]}}

`FORMATS` are the formats that are read; the elder shape with `structures` and `triggers` is read as triggered tags. They mean the
same to every backend. A mark that is a special token of the model has no text; it is written {"type": "token", "token": id or
name}, which xgrammar refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.grammars.ebnf import Ebnf, read_ebnf
from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import Node
from jackfield.grammars.schema_walk import read_json
from jackfield.hookspecs.grammar import GrammarError

MOST_NESTED = 30


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Token:
    """A special token, by id or by its text."""

    token: int | str


@dataclass(frozen=True)
class AnyText:
    """Any text without one of `excludes` in it."""

    excludes: tuple[str, ...]


@dataclass(frozen=True)
class Json:
    """JSON that keeps to the schema, which is checked already."""

    schema: Any


@dataclass(frozen=True)
class Pattern:
    tree: Node


@dataclass(frozen=True)
class Grammar:
    grammar: Ebnf


@dataclass(frozen=True)
class InOrder:
    elements: tuple[Format, ...]


@dataclass(frozen=True)
class Or:
    elements: tuple[Format, ...]


@dataclass(frozen=True)
class Repeated:
    content: Format
    least: int
    most: int | None


@dataclass(frozen=True)
class Tag:
    """begin, content, and one of the ends. Any text in it stops at the first end."""

    begin: Text | Token
    content: Format
    ends: tuple[Text | Token, ...]


@dataclass(frozen=True)
class TriggeredTags:
    """Free text; once it holds a trigger, a tag that begins with that trigger. at_least_one: it begins with a tag, and not with
    text. stop_after_first: nothing follows the first tag. Triggers and excludes do not come up in the text otherwise."""

    triggers: tuple[str, ...]
    tags: tuple[Tag, ...]
    at_least_one: bool
    stop_after_first: bool
    excludes: tuple[str, ...]


@dataclass(frozen=True)
class SeparatedTags:
    """Tags and nothing else, with the separator in between."""

    tags: tuple[Tag, ...]
    separator: str
    at_least_one: bool
    stop_after_first: bool


Format = (
    Text | Token | AnyText | Json | Pattern | Grammar | InOrder | Or | Repeated | Tag | TriggeredTags | SeparatedTags
)

_FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "const_string": (frozenset({"value"}), frozenset()),
    "token": (frozenset({"token"}), frozenset()),
    "any_text": (frozenset(), frozenset({"excludes"})),
    "json_schema": (frozenset({"json_schema"}), frozenset({"style"})),
    "regex": (frozenset({"pattern"}), frozenset()),
    "grammar": (frozenset({"grammar"}), frozenset({"syntax"})),
    "sequence": (frozenset({"elements"}), frozenset()),
    "or": (frozenset({"elements"}), frozenset()),
    "optional": (frozenset({"content"}), frozenset()),
    "plus": (frozenset({"content"}), frozenset()),
    "star": (frozenset({"content"}), frozenset()),
    "repeat": (frozenset({"content", "min", "max"}), frozenset()),
    "tag": (frozenset({"begin", "content", "end"}), frozenset()),
    "triggered_tags": (frozenset({"triggers", "tags"}), frozenset({"at_least_one", "stop_after_first", "excludes"})),
    "tags_with_separator": (frozenset({"tags", "separator"}), frozenset({"at_least_one", "stop_after_first"})),
}
FORMATS = tuple(_FIELDS)


def read_structural_tag(source: str, schema: Callable[[str, Any], Any]) -> Format:
    """schema: given a JSON pointer and a schema, checks it by the backend's rules. Raises GrammarError with a JSON pointer."""
    tag = read_json(source, "the structural tag")
    if not isinstance(tag, dict):
        raise _error("", "is an object")
    if "structures" in tag:
        return _Reader(schema).elder(tag)
    if set(tag) - {"type", "format"} or tag.get("type", "structural_tag") != "structural_tag" or "format" not in tag:
        raise _error("", 'has the fields "type": "structural_tag" and "format"')
    return _Reader(schema).format(tag["format"], "/format", 0)


def _error(pointer: str, what: str) -> GrammarError:
    return GrammarError(f"structural tag, {pointer or 'at its root'}: {what}", keyword=pointer or "/")


class _Reader:
    def __init__(self, schema: Callable[[str, Any], Any]) -> None:
        self.schema = schema

    def elder(self, tag: Mapping[str, Any]) -> Format:
        """{"structures": [{"begin", "schema", "end"}], "triggers": [...]}"""
        if set(tag) - {"type", "structures", "triggers"}:
            raise _error("", "has the fields structures and triggers only, or else format")
        structures = tag["structures"]
        if not isinstance(structures, list) or not all(isinstance(item, dict) for item in structures):
            raise _error("/structures", "is a list of objects")
        tags = []
        for number, item in enumerate(structures):
            if set(item) != {"begin", "schema", "end"}:
                raise _error(f"/structures/{number}", "has the fields begin, schema and end")
            content = {"type": "json_schema", "json_schema": item["schema"]}
            tags.append({"type": "tag", "begin": item["begin"], "content": content, "end": item["end"]})
        return self.format({"type": "triggered_tags", "triggers": tag.get("triggers"), "tags": tags}, "", 0)

    def format(self, value: Any, at: str, depth: int) -> Format:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in _FIELDS:
            raise _error(f"{at}/type", f"{kind!r} is none of the formats that are honoured: {', '.join(FORMATS)}")
        if depth > MOST_NESTED:
            raise _error(at, f"formats are nested more than {MOST_NESTED} deep")
        needed, possible = _FIELDS[kind]
        for name in sorted(needed - set(value)):
            raise _error(f"{at}/{name}", f"is missing in a {kind}")
        for name in sorted(set(value) - needed - possible - {"type"}):
            raise _error(f"{at}/{name}", f"is no field of a {kind} that is honoured")
        return self.read(kind, value, at, depth + 1)

    def read(self, kind: str, value: Mapping[str, Any], at: str, depth: int) -> Format:
        if kind == "const_string":
            return Text(self.text(value["value"], f"{at}/value"))
        if kind == "token":
            return self.token(value, at)
        if kind == "any_text":
            return AnyText(self.texts(value.get("excludes", []), f"{at}/excludes"))
        if kind == "json_schema":
            if value.get("style", "json") != "json":
                raise _error(f"{at}/style", "only the style 'json' is honoured")
            return Json(self.schema(f"{at}/json_schema", value["json_schema"]))
        if kind == "regex":
            where = f"structural tag, {at}/pattern"
            return Pattern(read_regex(self.text(value["pattern"], f"{at}/pattern"), where=where))
        if kind == "grammar":
            if value.get("syntax", "ebnf") != "ebnf":
                raise _error(f"{at}/syntax", "only the syntax 'ebnf' is honoured")
            where = f"structural tag, {at}/grammar"
            return Grammar(read_ebnf(self.text(value["grammar"], f"{at}/grammar"), where=where))
        if kind in ("sequence", "or"):
            elements = self.several(value["elements"], f"{at}/elements", depth)
            return InOrder(elements) if kind == "sequence" else Or(elements)
        if kind in ("optional", "plus", "star", "repeat"):
            return self.repeated(kind, value, at, depth)
        if kind == "tag":
            return self.tag(value, at, depth)
        return self.tags(kind, value, at, depth)

    def repeated(self, kind: str, value: Mapping[str, Any], at: str, depth: int) -> Format:
        counts = {"optional": (0, 1), "plus": (1, -1), "star": (0, -1), "repeat": (value.get("min"), value.get("max"))}
        least, most = counts[kind]
        whole = all(isinstance(count, int) and not isinstance(count, bool) and count <= 1000 for count in (least, most))
        if not whole or least < 0 or most < -1 or 0 <= most < least or most == 0:  # type: ignore[operator]
            raise _error(f"{at}/max", "min and max are whole numbers up to 1000, min not above max; max -1: any number")
        return Repeated(self.format(value["content"], f"{at}/content", depth), least, None if most == -1 else most)  # type: ignore[arg-type]

    def tag(self, value: Mapping[str, Any], at: str, depth: int) -> Tag:
        begin = self.mark(value["begin"], f"{at}/begin")
        ends = value["end"] if isinstance(value["end"], list) else [value["end"]]
        if not ends:
            raise _error(f"{at}/end", "has at least one end")
        content = self.format(value["content"], f"{at}/content", depth)
        marks = tuple(self.mark(end, f"{at}/end") for end in ends)
        if any(isinstance(mark, Text) and not mark.value for mark in marks) and (len(marks) > 1 or _ends_free(content)):
            raise _error(f"{at}/end", "is empty, so that where the content ends cannot be told")
        return Tag(begin, content, marks)

    def tags(self, kind: str, value: Mapping[str, Any], at: str, depth: int) -> Format:
        if not isinstance(value["tags"], list) or not value["tags"]:
            raise _error(f"{at}/tags", "is a list of tags that is not empty")
        tags = []
        for number, item in enumerate(value["tags"]):
            tag = self.format(item, f"{at}/tags/{number}", depth)
            if not isinstance(tag, Tag):
                raise _error(f"{at}/tags/{number}", 'is a "tag"')
            tags.append(tag)
        flags = [value.get(name, False) for name in ("at_least_one", "stop_after_first")]
        if not all(isinstance(flag, bool) for flag in flags):
            raise _error(at, "at_least_one and stop_after_first are true or false")
        if kind == "tags_with_separator":
            separator = self.text(value["separator"], f"{at}/separator")
            return SeparatedTags(tuple(tags), separator, flags[0], flags[1])
        triggers = self.texts(value["triggers"], f"{at}/triggers")
        if not triggers:
            raise _error(f"{at}/triggers", "is a list of texts that is not empty")
        for number, tag in enumerate(tags):
            begin = tag.begin.value if isinstance(tag.begin, Text) else ""
            if sum(begin.startswith(trigger) for trigger in triggers) != 1:
                raise _error(f"{at}/tags/{number}/begin", "begins with one of the triggers, and with one only")
        excludes = self.texts(value.get("excludes", []), f"{at}/excludes")
        return TriggeredTags(triggers, tuple(tags), flags[0], flags[1], excludes)

    def several(self, value: Any, at: str, depth: int) -> tuple[Format, ...]:
        if not isinstance(value, list) or not value:
            raise _error(at, "is a list of formats that is not empty")
        return tuple(self.format(item, f"{at}/{number}", depth) for number, item in enumerate(value))

    def text(self, value: Any, at: str) -> str:
        if not isinstance(value, str):
            raise _error(at, "is a text")
        return value

    def texts(self, value: Any, at: str) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise _error(at, "is a list of texts, none of them empty")
        return tuple(value)

    def mark(self, value: Any, at: str) -> Text | Token:
        if isinstance(value, dict):
            return self.token(value, at)
        return Text(self.text(value, at))

    def token(self, value: Mapping[str, Any], at: str) -> Token:
        token = value.get("token")
        if (
            set(value) != {"type", "token"}
            or value["type"] != "token"
            or not isinstance(token, int | str)
            or token is True
        ):
            raise _error(at, 'is a text, or {"type": "token", "token": id or name of a special token}')
        return Token(token)


def _ends_free(content: Format) -> bool:
    """Whether free text may stand at its end."""
    if isinstance(content, AnyText | TriggeredTags):
        return True
    if isinstance(content, InOrder):
        return _ends_free(content.elements[-1])
    if isinstance(content, Or):
        return any(map(_ends_free, content.elements))
    return isinstance(content, Repeated) and _ends_free(content.content)


def token_id(token: Token, special: Mapping[str, int], vocab_size: int) -> int:
    """The id of a special token. special: text of each -> id. Raises GrammarError."""
    if isinstance(token.token, str):
        if token.token not in special:
            known = ", ".join(sorted(special)[:20]) or "none that are known by name"
            raise GrammarError(
                f"structural tag: {token.token!r} is no special token of this model; these are: {known}",
                keyword=token.token,
            )
        return special[token.token]
    if not 0 <= token.token < vocab_size:
        raise GrammarError(f"structural tag: {token.token} is no token id below {vocab_size}", keyword=str(token.token))
    return token.token
