"""JSON schemas by keyword, with values that keep to them and values that break them. A backend may honour a keyword if each of
its cases here holds: every valid value can be written, no violating one can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SchemaCase:
    """keyword: the one that the violating values break."""

    keyword: str
    schema: Any
    valid: Sequence[Any]
    violating: Sequence[Any]


def _object(properties: dict[str, Any], required: Sequence[str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else list(required),
        "additionalProperties": False,
    } | more


INTEGER, STRING, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
ODD_TEXTS = ["日本", "😀", 'q"uote', "back\\slash", "é", "tab\tline\n", "/", "\u2028", "{}[],:"]

CASES: tuple[SchemaCase, ...] = (
    SchemaCase("type", {"type": "string"}, ["", "a", *ODD_TEXTS], [None, True, 1, 1.5, [], {}]),
    SchemaCase("type", {"type": "integer"}, [0, -1, 42, 10**15], [1.5, "1", True, None, []]),
    SchemaCase("type", {"type": "number"}, [0, -1.25, 42, 0.001], ["1", True, None, {}]),
    SchemaCase("type", {"type": "boolean"}, [True, False], [0, 1, "true", None]),
    SchemaCase("type", {"type": "null"}, [None], [0, False, "", "null", {}]),
    SchemaCase("type", {"type": "array"}, [[], [1, "a", [None]]], [{}, 1, "[]"]),
    SchemaCase("type", {"type": "object"}, [{}, {"a": 1, "日": [1]}], [[], 1, "{}"]),
    SchemaCase("type", {"type": ["string", "null"]}, ["a", None], [1, [], {}, False]),
    SchemaCase("enum", {"enum": ODD_TEXTS}, ODD_TEXTS, ["日", "x", "", 1, None]),  # b73
    SchemaCase("enum", {"enum": [1, "a", None, True, 2.5]}, [1, "a", None, True, 2.5], [2, "b", False, 2, []]),
    SchemaCase("enum", {"enum": [["a", 1], {"b": None}]}, [["a", 1], {"b": None}], [["a"], ["a", 2], {}, {"b": 1}]),
    SchemaCase("enum", {"type": "string", "enum": ["a", "b"]}, ["a", "b"], ["c", 1, ""]),
    SchemaCase("const", {"const": 42}, [42], [4, 421, "42", 42.5, None]),  # b73
    SchemaCase("const", {"const": True}, [True], [False, 1, "true", "True"]),  # b73
    SchemaCase("const", {"const": None}, [None], [False, 0, "null", "None"]),  # b73
    SchemaCase("const", {"const": "日\"\\é"}, ["日\"\\é"], ["日", "日\"\\e", ""]),
    SchemaCase("const", {"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{"a": [1]}, {}, {"a": [1, "y"]}]),
    SchemaCase("const", {"const": -2.5}, [-2.5], [2.5, -2, -2.55]),
    SchemaCase("minLength", {"type": "string", "minLength": 2}, ["ab", "日本", "abc"], ["", "a", "é", "😀"]),
    SchemaCase("maxLength", {"type": "string", "maxLength": 2}, ["", "ab", "😀😀"], ["abc", "日本語", "😀😀😀"]),
    SchemaCase("pattern", {"type": "string", "pattern": "^[a-c]+$"}, ["a", "cab"], ["", "d", "abd", "xa"]),
    SchemaCase("pattern", {"type": "string", "pattern": "^x"}, ["x", "xyz", "xé"], ["", "ax", "X"]),
    SchemaCase("pattern", {"type": "string", "pattern": "b+"}, ["b", "abc"], ["", "ac", "B"]),
    SchemaCase("pattern", {"type": "string", "pattern": "^a|b$"}, ["ax", "xb"], ["xa", "bx", ""]),
    SchemaCase("pattern", {"type": "string", "pattern": '^"\\\\.$'}, ['"\\x', '"\\é', '"\\"'], ['"', '"\\', '"\\xy']),
    SchemaCase("pattern", {"type": "string", "pattern": "^\\d{2}[^\\w]日?$"}, ["12-", "34 日"], ["1-", "123", "١٢-"]),
    SchemaCase("minimum", {"type": "integer", "minimum": 2}, [2, 3, 10, 999], [1, 0, -2, -20]),
    SchemaCase("minimum", {"type": "number", "minimum": -1.5}, [-1.5, 0, 0.25, 7], [-1.75, -2, -10.5]),
    SchemaCase("maximum", {"type": "integer", "maximum": 12}, [12, 9, 0, -100], [13, 20, 100, 120]),
    SchemaCase("maximum", {"type": "number", "maximum": 0.5}, [0.5, 0.25, 0, -7.5], [0.75, 0.51, 1, 10]),
    SchemaCase("exclusiveMinimum", {"type": "integer", "exclusiveMinimum": 2}, [3, 20], [2, 1, -3]),
    SchemaCase("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0}, [0.5, 1], [0, -1, -0.5]),
    SchemaCase("exclusiveMaximum", {"type": "integer", "exclusiveMaximum": 12}, [11, -12], [12, 13, 120]),
    SchemaCase("exclusiveMaximum", {"type": "number", "exclusiveMaximum": 1.5}, [1.25, 1, -2], [1.5, 1.75, 2]),
    SchemaCase("multipleOf", {"type": "integer", "multipleOf": 7}, [0, 7, 49, -14, 700], [1, 8, 50, -13, 71]),
    SchemaCase("multipleOf", {"type": "number", "multipleOf": 0.5}, [0, 0.5, 1.5, 3], [0.1, 0.25, 1.75]),
    SchemaCase("items", {"type": "array", "items": INTEGER}, [[], [1], [1, 2, 3]], [["a"], [1, None], [1.5]]),
    SchemaCase("items", {"type": "array", "items": {"type": "array", "items": NULL}}, [[], [[None]]], [[1], [[1]]]),
    SchemaCase("prefixItems", {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2},
               [[1, "a"]], [[1], ["a", 1], [1, 2], [1, "a", 2]]),
    SchemaCase("prefixItems", {"type": "array", "prefixItems": [INTEGER], "items": STRING, "minItems": 1},
               [[1], [1, "a", "b"]], [["a"], [1, 2], []]),
    SchemaCase("minItems", {"type": "array", "items": INTEGER, "minItems": 2}, [[1, 2], [1, 2, 3]], [[], [1]]),
    SchemaCase("maxItems", {"type": "array", "items": INTEGER, "maxItems": 2}, [[], [1], [1, 2]], [[1, 2, 3]]),
    SchemaCase("properties", _object({"日": INTEGER, 'q"\\': STRING}), [{"日": 1, 'q"\\': "a"}],  # b73
               [{"日": "1", 'q"\\': "a"}, {"日": 1, 'q"\\': 1}]),
    SchemaCase("properties", _object({"a": _object({"b": NULL})}), [{"a": {"b": None}}], [{"a": {"b": 1}}, {"a": 1}]),
    SchemaCase("required", _object({"a": INTEGER, "b": STRING}, ["b"]), [{"b": "x"}, {"a": 1, "b": "x"}],
               [{}, {"a": 1}]),
    SchemaCase("additionalProperties", _object({"a": INTEGER}), [{"a": 1}], [{"a": 1, "b": 1}, {"a": 1, "A": 1}]),
    SchemaCase("additionalProperties", {"type": "object", "additionalProperties": INTEGER}, [{}, {"a": 1, "é": 2}],
               [{"a": "x"}, {"a": 1, "b": None}]),
    SchemaCase("patternProperties",
               {"type": "object", "patternProperties": {"^x[0-9]$": INTEGER}, "additionalProperties": False},
               [{}, {"x1": 1}, {"x1": 1, "x2": 2}], [{"x1": "a"}, {"y": 1}, {"x": 1}, {"x12": 1}]),
    SchemaCase("minProperties", {"type": "object", "minProperties": 1}, [{"a": 1}, {"a": 1, "b": 2}], [{}]),
    SchemaCase("maxProperties", {"type": "object", "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    SchemaCase("anyOf", {"anyOf": [INTEGER, _object({"a": NULL})]}, [1, {"a": None}], ["1", {"a": 1}, None, {}]),
    SchemaCase("allOf", {"allOf": [INTEGER]}, [1], ["a", None]),
    SchemaCase("allOf", {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 4}]}, [2, 4], [1, 5, "a"]),
    SchemaCase("allOf", {"allOf": [_object({"a": INTEGER}, additionalProperties=True),
                                   _object({"b": STRING}, additionalProperties=True)]},
               [{"a": 1, "b": "x"}], [{"a": 1}, {"b": "x"}, {"a": "1", "b": "x"}, {"a": 1, "b": 1}]),
    SchemaCase("oneOf", {"oneOf": [INTEGER, STRING]}, [1, "a"], [1.5, None, []]),
    SchemaCase("oneOf", {"oneOf": [INTEGER, {"type": "number"}]}, [1.5], [1, 2, "a"]),
    SchemaCase("$ref", {"$ref": "#/$defs/t", "$defs": {"t": INTEGER}}, [1], ["a", 1.5]),
    SchemaCase("$ref", {"$ref": "#/$defs/t", "minimum": 3, "$defs": {"t": INTEGER}}, [3], [2, "a"]),
    SchemaCase("$ref", {"$ref": "#/$defs/node", "$defs": {"node": _object(
        {"v": INTEGER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}})}},
        [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}],
        [{"v": 1, "next": {"v": 2, "next": 3}}, {"v": 1, "next": {"v": "2", "next": None}}, {"v": 1, "next": {}}]),
    SchemaCase("$ref", _object({"a": {"$ref": "#/properties/b"}, "b": INTEGER}), [{"a": 1, "b": 2}], [{"a": "x", "b": 2}]),
    SchemaCase("uniqueItems", {"type": "array", "items": INTEGER, "uniqueItems": True}, [[1, 2]], [[1, 1]]),
    SchemaCase("contains", {"type": "array", "contains": STRING}, [["a"], [1, "a"]], [[], [1]]),
    SchemaCase("not", {"not": STRING}, [1], ["a"]),
    SchemaCase("if", {"if": INTEGER, "then": {"minimum": 3}}, [3, "a"], [1]),
    SchemaCase("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[ab]$"}}, [{"a": 1}], [{"c": 1}]),
    SchemaCase("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}], [{"a": 1}]),
    SchemaCase("dependentSchemas", {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}},
               [{"a": 1, "b": 1}], [{"a": 1}]),
    SchemaCase("unevaluatedProperties", {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
               [{"a": 1}], [{"b": 1}]),
    SchemaCase("unevaluatedItems", {"type": "array", "prefixItems": [INTEGER], "unevaluatedItems": False}, [[1]], [[1, 2]]),
    SchemaCase("minContains", {"type": "array", "contains": STRING, "minContains": 2}, [["a", "b"]], [["a"]]),
    SchemaCase("maxContains", {"type": "array", "contains": STRING, "maxContains": 1}, [["a"]], [["a", "b"]]),
    SchemaCase("minimum", {"minimum": 2}, [2, "a", None, {}], [1, 1.5]),
    SchemaCase("minLength", {"minLength": 2}, ["ab", 1, None], ["a", ""]),
    SchemaCase("minLength", {"type": ["integer", "string"], "minLength": 2, "minimum": 3}, ["ab", 3], ["a", 2]),
    SchemaCase("minLength", {"type": "string", "pattern": "^a", "minLength": 3}, ["abc"], ["a", "xyz"]),
    SchemaCase("enum", {"type": "string", "enum": ["a", 1]}, ["a"], [1]),
    SchemaCase("anyOf", {"type": "integer", "anyOf": [{"minimum": 4}, {"maximum": 0}]}, [4, 0], [1, "a"]),
    SchemaCase("required", {"type": "object", "required": ["b"]}, [{"b": 1}], [{}, {"a": 1}]),
    SchemaCase("properties", {"type": "object", "properties": {"a": INTEGER}}, [{}, {"a": 1}], [{"a": "x"}]),
    SchemaCase("minProperties", {"type": "object", "minProperties": 2}, [{"a": 1, "b": 2}], [{}, {"a": 1}]),
    SchemaCase("patternProperties", {"type": "object", "properties": {"x1": {"type": "number"}},
                                     "patternProperties": {"^x": {"minimum": 3}}}, [{"x1": 4}], [{"x1": 1}]),
)  # fmt: skip

VIOLATING_TEXTS: tuple[tuple[str, Any, str], ...] = (
    ("properties", {"type": "object", "properties": {"a": INTEGER}}, '{"\\u0061":"x"}'),
    ("properties", {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": True}, '{"\\u0061":"x"}'),
    ("properties", {"type": "object", "properties": {"a": INTEGER}}, '{"a":1,"a":"x"}'),
    ("minProperties", {"type": "object", "minProperties": 2}, '{"a":1,"a":1}'),
    ("type", {"type": "string"}, '"line\nbreak"'),
    ("type", {"type": "number"}, "01"),
    ("type", {"type": "number"}, "1."),
    ("type", {"type": "number"}, "NaN"),
    ("const", {"const": 42}, "042"),
)
"""Violations that are only in the spelling: (keyword, schema, text)."""

FORMAT_CASES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "date": (["2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01"],
             ["2023-02-29", "1900-02-29", "2024-02-30", "2024-13-01", "2024-04-31", "0000-01-01", "24-01-01", ""]),
    "time": (["00:00:00Z", "23:59:59.123+01:00"], ["24:00:00Z", "12:60:00Z", "12:00:00", "12:00Z", "12:00:00+24:00"]),
    "date-time": (["2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5-08:00"],
                  ["2023-02-29T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29T12:00:00", "2024-02-29"]),
    "duration": (["P1D", "PT1S", "P1Y2M3DT4H5M6S", "P2W", "P1M"], ["P", "PT", "1D", "P1S", "P1H", "P1Y2W", "P1D1Y"]),
    "email": (["a@b.co", "first.last+tag@mail.example.org"], ["a", "a@", "@b", "a b@c", "a..b@c", ".a@c", "a@-c"]),
    "hostname": (["a", "example.org", "a-b.c"], ["", "-a", "a-", "a_b", "a..b", ".a", "a b", "x" * 64]),
    "ipv4": (["1.2.3.4", "255.255.255.255", "0.0.0.0"], ["1.2.3.256", "01.2.3.4", "1.2.3", "1.2.3.4.5", "a.b.c.d"]),
    "ipv6": (["::", "::1", "fe80::1", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"],
             ["1:2", "1::2::3", ":::", "12345::", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8:9", ":1", "g::"]),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"],
             ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400", "g23e4567-e89b-12d3-a456-426614174000"]),
    "uri": (["https://example.org/a?b=c#d", "mailto:a@b.co", "http://h:80"], ["example.org", "/a", "http://a b", "1:x", "http://%"]),
}  # fmt: skip
"""Format -> (valid, violating)."""
