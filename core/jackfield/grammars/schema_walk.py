"""Goes through a JSON schema: every place at which a schema lies, with its JSON pointer, each checked for shape.

Refuses what is no schema, what no value can satisfy because it refers to itself, and references that lead out of the schema.
Linear in the schema. What a backend honours is not its business: `schema_rules` asks at each place.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from jackfield.grammars.finite import Finite
from jackfield.grammars.schema_keywords import ANNOTATIONS, DIALECTS, IN_PLACE, KEYWORDS, TYPES, is_exact, is_number
from jackfield.hookspecs.grammar import GrammarError

MOST_NESTED = 100
"""How deep a schema may nest; the core's own limit, a setting, is lower."""


@dataclass(frozen=True)
class Place:
    """One schema within the whole. pointer: "" the root; types: what `type` allows, or None where it says nothing."""

    pointer: str
    schema: Mapping[str, Any]
    types: frozenset[str] | None

    def error(self, keyword: str, what: str) -> GrammarError:
        return error(f"{self.pointer}/{escaped(keyword)}", what)


def error(pointer: str, what: str) -> GrammarError:
    return GrammarError(f"JSON schema, {pointer or 'at its root'}: {what}", keyword=pointer or "/")


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def read_json(source: str, what: str) -> Any:
    """A JSON text, strictly: no NaN or Infinity, no name twice in an object. Raises GrammarError that says where."""

    def constant(name: str) -> Any:
        raise GrammarError(f"{what} holds {name}, which is no JSON", keyword=name)

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise GrammarError(f"{what} names {twice!r} twice in one object", keyword=twice)
        return found

    try:
        value = json.loads(source, parse_constant=constant, object_pairs_hook=mapping)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise GrammarError(f"{what} holds half a surrogate pair, which no text can") from None
    except json.JSONDecodeError as wrong:
        raise GrammarError(f"{what} is no JSON: {wrong}") from None
    except (RecursionError, ValueError) as wrong:  # nested without end; a number of thousands of digits
        raise GrammarError(f"{what} cannot be read: {wrong}") from None
    return value


def places(schema: Any) -> list[Place]:
    """Every place at which a schema lies, root first, except the schemas true and false. Raises GrammarError."""
    found: dict[str, Place | bool] = {}
    stack: list[tuple[str, Any, int]] = [("", schema, 0)]
    while stack:
        pointer, value, depth = stack.pop()
        if isinstance(value, bool):
            found[pointer] = value
            continue
        if not isinstance(value, dict):
            raise error(pointer, "a schema is an object, true or false")
        if depth > MOST_NESTED:
            raise error(pointer, f"schemas are nested more than {MOST_NESTED} deep")
        place = Place(pointer, value, _types(value))
        _check_shape(place)
        found[pointer] = place
        for inner, sub in subschemas(place):
            stack.append((inner, sub, depth + 1))
    _check_references(found)
    return [place for place in found.values() if isinstance(place, Place)]


def subschemas(place: Place) -> Iterator[tuple[str, Any]]:
    """The schemas right inside this one, each with its pointer."""
    for keyword, value in place.schema.items():
        if (rule := KEYWORDS.get(keyword)) is None:
            continue
        inside = f"{place.pointer}/{escaped(keyword)}"
        if rule.one:
            yield inside, value
        elif rule.several:
            yield from ((f"{inside}/{number}", sub) for number, sub in enumerate(value))
        elif rule.named:
            yield from ((f"{inside}/{escaped(name)}", sub) for name, sub in value.items())


def target(place: Place) -> str:
    """The pointer to which `$ref` leads."""
    reference = place.schema["$ref"]
    if reference != "#" and not reference.startswith("#/"):
        raise place.error("$ref", f"{reference!r} leads out of this schema; only '#' and '#/...' are followed")
    return unquote(reference[1:])


def _types(schema: Mapping[str, Any]) -> frozenset[str] | None:
    kind = schema.get("type")
    names = [kind] if isinstance(kind, str) else kind
    return frozenset(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _check_shape(place: Place) -> None:
    for keyword, value in place.schema.items():
        if keyword in KEYWORDS:
            if complaint := KEYWORDS[keyword].complaint(value):
                raise place.error(keyword, f"must be {complaint}{_hint(keyword, value)}")
        elif keyword == "$schema":
            if not isinstance(value, str) or value.rstrip("#") not in DIALECTS:
                raise place.error(keyword, f"must be one of {', '.join(DIALECTS)}")
        elif keyword == "$id" and place.pointer:
            raise place.error(keyword, "an identifier below the root moves the base of references; leave it out")
        elif keyword != "$id" and keyword not in ANNOTATIONS and not keyword.startswith("x-"):
            near = difflib.get_close_matches(keyword, KEYWORDS, 1)
            raise place.error(keyword, f"is no known keyword{f'; did you mean {near[0]!r}?' if near else ''}")
    for keyword in ("enum", "const"):
        if keyword in place.schema and (wrong := _inexact(place.schema[keyword])) is not None:
            raise place.error(keyword, f"{wrong} cannot be written exactly: at most 2^53, and no exponent")


def _hint(keyword: str, value: Any) -> str:
    if keyword == "type" and isinstance(value, str):
        near = difflib.get_close_matches(value, TYPES, 1)
        return f", not {value!r}{f'; did you mean {near[0]!r}?' if near else ''}"
    if keyword == "items" and isinstance(value, list):
        return "; a list of them is 'prefixItems'"
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        return f", and not a flag beside {keyword[9:].lower()!r} as in draft 4"
    return ""


def _inexact(value: Any) -> float | None:
    stack = [value]
    while stack:
        item = stack.pop()
        if is_number(item) and not is_exact(item):
            number: float = item
            return number
        stack.extend(item if isinstance(item, list) else item.values() if isinstance(item, dict) else ())
    return None


def _check_references(found: Mapping[str, Place | bool]) -> None:
    """Each reference leads to a schema, none comes back to itself without a value in between, and some finite value is
    allowed at the root."""
    finite = Finite()
    same_value: dict[str, list[str]] = {}
    for pointer, place in found.items():
        finite.add(pointer)
        if isinstance(place, bool):
            if not place:
                finite.require(pointer, [])
            continue
        inside = same_value[pointer] = []
        if "$ref" in place.schema:
            if (there := target(place)) not in found:
                raise place.error("$ref", f"{place.schema['$ref']!r} is no place in this schema at which a schema lies")
            inside.append(there)
            finite.require(pointer, [there])
        inner = [sub for sub, _ in subschemas(place)]
        for keyword in IN_PLACE:
            options = [sub for sub in inner if sub.rpartition("/")[0] == f"{pointer}/{keyword}"]
            inside.extend(options)
            if keyword == "allOf":
                for option in options:
                    finite.require(pointer, [option])
            elif options:
                finite.require(pointer, options)
        for part in _needed_parts(place):
            if part in found:
                finite.require(pointer, [part])
    _refuse_cycles(same_value)
    if "" not in finite.met():
        raise error("", "no finite value satisfies it")


def _needed_parts(place: Place) -> Iterator[str]:
    """The places of parts without which no value is valid."""
    if place.types == frozenset({"object"}):
        for name in place.schema.get("required", ()):
            yield f"{place.pointer}/properties/{escaped(name)}"
    if place.types == frozenset({"array"}):
        least = int(place.schema.get("minItems", 0))
        first = place.schema.get("prefixItems", ())
        yield from (f"{place.pointer}/prefixItems/{number}" for number in range(min(least, len(first))))
        if least > len(first):
            yield f"{place.pointer}/items"


def _refuse_cycles(same_value: Mapping[str, list[str]]) -> None:
    done: set[str] = set()
    for start in same_value:
        path: list[tuple[str, Iterator[str]]] = [(start, iter(same_value[start]))]
        on_path = {start}
        while path and start not in done:
            pointer, rest = path[-1]
            following = next((there for there in rest if there not in done), None)
            if following is None:
                done.add(pointer)
                on_path.discard(pointer)
                path.pop()
            elif following in on_path:
                raise error(pointer, f"refers to {following or '#'} and so to itself, with no value in between")
            else:
                on_path.add(following)
                path.append((following, iter(same_value.get(following, ()))))
