"""Which JSON schemas llguidance honours in full, and how they are handed to it.

llguidance refuses most of what it does not implement by itself, when it compiles; `RULES` says it earlier, in words with a
pointer, and refuses what it would let pass:

- Names of further properties may be spelled with numbers of characters ("\\u0061" for a), past the schema of the property a.
  Such spellings are switched off altogether (`ESCAPES`).
- Of two further properties that have the same name a reader keeps one, so a minimum of properties counts only as far as
  the required ones reach, and one more.
- Beside named properties, a pattern of further names that fits a few of them only leads into a dead end.
"""

from __future__ import annotations

import json
from typing import Any

from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import unbounded
from jackfield.grammars.schema_rules import SchemaRules, control_characters, format_pattern, rewrite, whole_pattern
from jackfield.grammars.schema_walk import Place

WHITESPACE = r"[\x20\x0A\x0D\x09]{0,2}"
"""Between two marks of JSON, so that a model cannot pad for ever."""
ESCAPES = 'nrbtf\\"'
MOST_PROPERTIES = 1000
"""Of one object: llguidance's own limit on alternatives at one place is 2000, and each property is one and more."""


def _properties(place: Place) -> None:
    schema = place.schema
    properties = schema.get("properties", {})
    if len(properties) > MOST_PROPERTIES:
        raise place.error("properties", f"{len(properties)} of them; llguidance takes up to {MOST_PROPERTIES}")
    for pattern in schema.get("patternProperties", ()) if properties else ():
        if not unbounded(read_regex(pattern, search=True)):
            # Once all of them are named, a further one is begun that has no name left.
            raise place.error(
                "patternProperties", f"{pattern!r} fits a limited number of names; write them into 'properties'"
            )
    required = set(schema.get("required", ()))
    for keyword in ("minProperties", "maxProperties"):
        if keyword in schema and (optional := [name for name in properties if name not in required]):
            raise place.error(
                keyword, f"llguidance honours it only where all properties are required; {optional[0]!r} is not"
            )
    if schema.get("minProperties", 0) > len(required) + 1:
        raise place.error("minProperties", f"is honoured up to {len(required) + 1} here, one more than are required")


def _written(place: Place) -> None:
    for keyword in ("const", "enum", "properties", "required"):
        if control_characters(_texts(place.schema.get(keyword), keyword)):
            raise place.error(
                keyword, "holds a control character that JSON writes by number only, which is switched off"
            )


def _texts(value: Any, keyword: str) -> Any:
    return list(value) if keyword == "properties" and isinstance(value, dict) else value


RULES = SchemaRules(
    backend="llguidance",
    keywords=frozenset(
        {
            "type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf",
            "minLength", "maxLength", "pattern", "format",
            "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
            "items", "prefixItems", "minItems", "maxItems",
            "properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties",
        }
    ),
    further=(_properties, _written),
)  # fmt: skip


def _change(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema in llguidance's words: patterns in the dialect that all engines read alike, formats as patterns."""
    if "pattern" in schema:
        schema["pattern"] = whole_pattern(schema["pattern"])
    if "patternProperties" in schema:
        schema["patternProperties"] = {whole_pattern(name): sub for name, sub in schema["patternProperties"].items()}
    if "format" in schema:
        also = {"pattern": format_pattern(schema.pop("format"))}
        if "pattern" in schema:
            schema["allOf"] = [*schema.get("allOf", ()), also]
        else:
            schema |= also
    return schema


def json_grammar(schema: Any) -> str:
    """A checked schema as llguidance's `%json` takes it."""
    plain = rewrite(schema, _change)
    if not isinstance(plain, dict):
        plain = {} if plain else {"enum": []}
    plain["x-guidance"] = {"whitespace_pattern": WHITESPACE, "json_allowed_escapes": ESCAPES}
    return json.dumps(plain, ensure_ascii=False)
