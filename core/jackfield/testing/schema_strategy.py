"""Random JSON schemas for property tests (hypothesis), and random texts that a grammar's masks allow.

The schemas are of the keywords that backends may honour, in company that they often get from clients; which of them one backend
refuses is for its `check` to say.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from jackfield.hookspecs.grammar import GrammarMatcher

TEXTS = ["", "a", "ab", "日本", "é", 'q"\\', "😀", "x y", "A1"]
PATTERNS = ["^a", "b$", "^[a-c]{1,3}$", "x|y", "^(ab|cd)+$", "^[^a]+$", "^.$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "duration"]
NAMES = ["a", "b", "日", 'k"\\', "x1"]
_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-200, 200), st.sampled_from([0.5, -1.25]), st.sampled_from(TEXTS)
)
_VALUES = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=2), st.dictionaries(st.sampled_from(NAMES), _SCALARS, max_size=2)
)


def _some(options: dict[str, SearchStrategy[Any]], base: dict[str, Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=options).map(lambda chosen: base | chosen)


def _scalars() -> SearchStrategy[dict[str, Any]]:
    bounds = {
        name: st.integers(-30, 30)
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    }  # fmt: skip
    halves = {name: strategy.map(lambda n: n / 4) for name, strategy in bounds.items()}
    lengths = {"minLength": st.integers(0, 3), "maxLength": st.integers(1, 5)}
    return st.one_of(
        st.sampled_from([{"type": "null"}, {"type": "boolean"}, {}, {"type": ["integer", "null"]}]),
        _some(bounds | {"multipleOf": st.integers(1, 7)}, {"type": "integer"}),
        _some(halves | {"multipleOf": st.sampled_from([0.5, 2])}, {"type": "number"}),
        _some(lengths | {"pattern": st.sampled_from(PATTERNS)}, {"type": "string"}),
        _some(lengths, {"type": "string"}),
        st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
        st.sampled_from(FORMATS).map(lambda name: {"type": "string", "format": name}),
        st.lists(_VALUES, min_size=1, max_size=4).map(lambda values: {"enum": values}),
        _VALUES.map(lambda value: {"const": value}),
        _some(lengths | bounds, {}),
    )


@st.composite
def _objects(draw: st.DrawFn, parts: SearchStrategy[Any]) -> dict[str, Any]:
    properties: dict[str, Any] = draw(st.dictionaries(st.sampled_from(NAMES), parts, max_size=3))
    named: bool = bool(properties) or draw(st.booleans())
    schema: dict[str, Any] = {"type": "object"}
    if named:
        schema["properties"] = properties
        schema["required"] = [name for name in properties if draw(st.booleans())]
    more = draw(st.sampled_from(["closed", "unsaid", "open", "schema", "pattern"]))
    if more in ("closed", "pattern"):
        schema["additionalProperties"] = False
    if more == "pattern":
        schema["patternProperties"] = {draw(st.sampled_from(["^x[0-9]$", "^[ab]$"])): draw(parts)}
    if more in ("open", "schema"):
        schema["additionalProperties"] = draw(parts) if more == "schema" else True
    if draw(st.integers(0, 3)) == 0:
        schema[draw(st.sampled_from(["minProperties", "maxProperties"]))] = draw(st.integers(0, 2))
    return schema


@st.composite
def _arrays(draw: st.DrawFn, parts: SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(parts, min_size=1, max_size=2))
    if draw(st.booleans()):
        schema["items"] = draw(st.one_of(parts, st.sampled_from([True, False])))
    schema |= draw(_some({"minItems": st.integers(0, 2), "maxItems": st.integers(1, 3)}, {}))
    return schema


def _combined(parts: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    several = st.lists(parts, min_size=1, max_size=2)
    return st.one_of(
        several.map(lambda options: {"anyOf": options}),
        several.map(lambda options: {"allOf": options}),
        several.map(lambda options: {"oneOf": options}),
        st.tuples(_scalars(), several).map(lambda pair: pair[0] | {"anyOf": pair[1]}),
        st.tuples(_scalars(), st.sampled_from([{"minimum": 2}, {"maxLength": 3}, {"enum": ["a", 3]}])).map(
            lambda pair: pair[0] | {"allOf": [pair[1]]}
        ),
    )


def schemas() -> SearchStrategy[dict[str, Any]]:
    parts = st.recursive(
        _scalars(), lambda inner: st.one_of(_objects(inner), _arrays(inner), _combined(inner)), max_leaves=4
    )
    shared = st.tuples(parts, parts).map(_with_reference)
    return st.one_of(parts, _objects(parts), shared)


def _with_reference(pair: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    outer, inner = pair
    return {
        "type": "object",
        "$defs": {"t": inner},
        "properties": {"a": {"$ref": "#/$defs/t"}, "b": outer},
        "required": ["a"],
        "additionalProperties": False,
    }


def written(
    matcher: GrammarMatcher, vocab: Sequence[bytes], stop_ids: Sequence[int], dice: random.Random, most: int = 120
) -> bytes | None:
    """A random text that the masks allow from beginning to end, or None if `most` tokens were not enough. Past the first third it
    hurries: it takes the tokens that close things."""
    text, words = b"", np.zeros(-(-len(vocab) // 32), dtype=np.uint32)
    for step in range(most):
        if matcher.terminated:
            return text
        matcher.fill(words)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(vocab)]
        complete = any(bits[token] for token in stop_ids)
        bits[list(stop_ids)] = 0
        choices = np.flatnonzero(bits)
        if complete and (not choices.size or step > most // 3 or dice.random() < 0.4):
            return text
        if not choices.size:
            raise AssertionError(f"nothing may follow {text!r}")
        if step > most // 3 and dice.random() < 0.8:
            closing = [
                token for token in choices.tolist() if vocab[token] in (b'"', b"}", b"]", b"0", b"Z", b"t", b"n")
            ]
            token = dice.choice(closing) if closing else int(dice.choice(choices.tolist()))
        else:
            token = int(dice.choice(choices.tolist()))
        if not matcher.accept(token):
            raise AssertionError(f"{vocab[token]!r} is in the mask behind {text!r}, and accept refuses it")
        text += vocab[token]
    return None
