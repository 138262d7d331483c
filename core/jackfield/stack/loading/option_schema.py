"""One option of a plugin as its JSON schema tells it, and a text turned into a value of its type. Imports no plugin.

Ranges and whatever else a model checks are the model's business, when the options are validated. A nested model gives one
option for each of its fields, with a path of several steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.config.errors import did_you_mean
from jackfield.config.text_values import NONE, toml_value

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_PATHS = ("path", "file-path", "directory-path")
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": NONE,
    "object": "a JSON object",
}


@dataclass(frozen=True, kw_only=True)
class OptionField:
    """path: names from the model down; schema: its alternatives, without references, each with one type."""

    path: tuple[str, ...]
    alternatives: tuple[Mapping[str, Any], ...]
    default: Any
    required: bool
    description: str

    @property
    def is_switch(self) -> bool:
        """Whether it is true or false and nothing else, so that its flag takes no value."""
        return [arm.get("type") for arm in self.alternatives] == ["boolean"]

    @property
    def is_list(self) -> bool:
        """Whether its flag may be repeated."""
        return any(arm.get("type") == "array" for arm in self.alternatives)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, if it takes no others."""
        if not all("enum" in arm or arm.get("type") == "null" for arm in self.alternatives):
            return ()
        return tuple(_word(value) for arm in self.alternatives for value in arm.get("enum", (NONE,)))

    @property
    def type_text(self) -> str:
        """What --help says of its type."""
        return " or ".join(dict.fromkeys(_told(arm) for arm in self.alternatives))

    def parse(self, text: str) -> Any:
        """The value that the text stands for. Raises ValueError with what would be valid."""
        for arm in sorted(self.alternatives, key=_rank):
            try:
                return _parse(arm, text)
            except ValueError:
                continue
        choices = [_word(value) for arm in self.alternatives for value in arm.get("enum", ())]
        meant = did_you_mean(text, choices) if choices else ""
        raise ValueError(f"{text!r} is not {self.type_text}{meant if 'did you mean' in meant else ''}")


def option_fields(schema: Mapping[str, Any]) -> tuple[OptionField, ...]:
    """The options of a model, from what pydantic's `model_json_schema()` gave."""
    return tuple(_fields(schema, schema, ()))


def _fields(model: Mapping[str, Any], root: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[OptionField]:
    required = model.get("required", ())
    for name, entry in model.get("properties", {}).items():
        alternatives = _alternatives(entry, root)
        nested = [arm for arm in alternatives if arm.get("properties")]
        # A model that holds itself would never end: from the third step down it is a JSON object.
        if len(alternatives) == 1 and nested and len(path) < 3:
            yield from _fields(nested[0], root, (*path, name))
            continue
        yield OptionField(
            path=(*path, name),
            alternatives=alternatives,
            default=entry.get("default"),
            required=name in required,
            description=entry.get("description", ""),
        )


def _alternatives(entry: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    if "$ref" in entry:
        return _alternatives(root["$defs"][entry["$ref"].rpartition("/")[2]], root)
    arms = entry.get("anyOf") or entry.get("oneOf") or entry.get("allOf")
    if arms:
        return tuple(found for arm in arms for found in _alternatives(arm, root))
    if "const" in entry:
        entry = {**entry, "enum": [entry["const"]]}
    if isinstance(entry.get("items"), Mapping):
        entry = {**entry, "arms": _alternatives(entry["items"], root)}
    if isinstance(entry.get("type"), list):
        return tuple({**entry, "type": name} for name in entry["type"])
    return (entry,)


def _word(value: Any) -> str:
    """One of an option's values as it is typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _told(arm: Mapping[str, Any]) -> str:
    if "enum" in arm:
        values = [_word(value) for value in arm["enum"]]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    kind = arm.get("type")
    if kind == "array":
        inner = " or ".join(dict.fromkeys(_told(item) for item in arm.get("arms", ()))) or "text"
        return f"a list ({inner}; by commas, or the flag repeated)"
    if kind == "string":
        return "a path" if arm.get("format") in _PATHS else "text"
    return _WORDS.get(str(kind), "a TOML value")


def _rank(arm: Mapping[str, Any]) -> int:
    """Text fits every text, so it comes last; of two numbers the narrower one first."""
    if "enum" in arm:
        return 1
    return {"null": 0, "boolean": 2, "integer": 3, "number": 4, "array": 5, "object": 6, "string": 8}.get(
        arm.get("type", ""), 7
    )


def _parse(arm: Mapping[str, Any], text: str) -> Any:
    if "enum" in arm:
        for value in arm["enum"]:
            if _word(value) == text:
                return value
        raise ValueError(text)
    match arm.get("type"):
        case "null" if text == NONE:
            return None
        case "null":
            raise ValueError(text)
        case "boolean":
            if text.lower() in _TRUE + _FALSE:
                return text.lower() in _TRUE
            raise ValueError(text)
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "string":
            return text
        case "array":
            return _list(arm, text)
        case "object":
            return _object(text)
        case _:
            return toml_value(text)


def _list(arm: Mapping[str, Any], text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        value = toml_value(text)
        if not isinstance(value, list):
            raise ValueError(text)
        return value
    if text == NONE:
        return []
    items = arm.get("arms", ())
    if not items:
        return [part.strip() for part in text.split(",")]
    field = OptionField(path=(), alternatives=items, default=None, required=False, description="")
    return [field.parse(part.strip()) for part in text.split(",")]


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = toml_value(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value
