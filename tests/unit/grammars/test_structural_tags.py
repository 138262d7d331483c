"""Structural tags mean the same to every backend; what is malformed is refused with its JSON pointer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from jackfield.grammars.structural_tags import read_structural_tag
from jackfield.hookspecs import GrammarBackend, GrammarError
from tests.unit.grammars.backends import complete, grammar, make, takes

INT = {"type": "json_schema", "json_schema": {"type": "integer"}}
CALL = {
    "type": "json_schema",
    "json_schema": {"type": "object", "properties": {"a": {"enum": ["é", 1]}}, "required": ["a"]},
}
ANY = {"type": "any_text"}


def text(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: Any, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


TAGS = [tag("<f>", INT, "</f>"), tag("<fx>", ANY, "</fx>"), tag("<g>", CALL, ["</g>", "<end>"])]


def triggered(**more: Any) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": ["<f", "<g"], "tags": TAGS} | more


FREE_AND_TAGS = [
    "hi<f>1</f>",
    "<f>1</f>bye",
    "<f>1</f><f>2</f>",
    '<f>1</f> <fx>a\n日</fx> <g>{"a":"é"}<end>',
    "<f>-12</f>< f",
]
BROKEN = ["<f", "<f>x</f>", "a<g", '<g>{"a":2}</g>', "<f>1<f>2</f></f>", "<f>1</f><g>", "<f>1</g>", "<fx>a"]

CASES: list[tuple[str, Any, list[str], list[str]]] = [
    ("triggered", triggered(), ["", "hi", "<", *FREE_AND_TAGS], BROKEN),
    ("at least one", triggered(at_least_one=True),
     ["<f>1</f>", "<f>1</f>bye", "<f>1</f> <f>2</f>"], ["", "hi", "hi<f>1</f>", *BROKEN]),
    ("stop", triggered(stop_after_first=True),
     ["", "hi", "a<f>1</f>", "<fx>a</fx>"], ["<f>1</f>bye", "<f>1</f><f>2</f>", *BROKEN]),
    ("one", triggered(at_least_one=True, stop_after_first=True),
     ["<f>1</f>", "<fx>a</fx>"], ["", "a<f>1</f>", "<f>1</f>b", *BROKEN]),
    ("excludes", triggered(excludes=["bad"]), ["ba", "ok<f>1</f>b"], ["bad", "bad<f>1</f>", "<f>1</f>bad"]),
    ("any text", ANY, ["", "x\n日😀"], []),
    ("any text excludes", ANY | {"excludes": ["ab", "日"]}, ["", "axb"], ["ab", "xaby", "日"]),
    ("tag", tag("<a>", ANY, "</a>"), ["<a></a>", "<a>x\n日</</a>"], ["<a>", "<a>x</a></a>", "</a>", ""]),
    ("two ends", tag("<a>", ANY, ["</a>", "!"]), ["<a>x!", "<a></a>"], ["<a>x!</a>", "<a>"]),
    ("json", CALL, ['{"a":"é"}', '{ "a": 1}'], ['{"a":2}', "{}", '{   "a":1}', '{"a":1}x']),
    ("regex", {"type": "regex", "pattern": "^[a-c]+$"}, ["abc"], ["", "d", "abcd"]),
    ("grammar", {"type": "grammar", "grammar": 'root ::= "(" root ")" | [a-c]*'}, ["", "((ab))"], ["((a)", "d"]),
    ("sequence", {"type": "sequence", "elements": [text("a"), {"type": "regex", "pattern": "[a-c]*"}, text("b"), INT, text("!")]},
     ["ab1!", "aabcb-7!"], ["a1!", "ab!", "abx!", "ab1"]),
    ("or", {"type": "or", "elements": [INT, text("x"), tag("(", CALL, ")")]}, ["1", "x", '({"a":1})'], ["", "y", "1x", "()"]),
    ("optional", {"type": "optional", "content": INT}, ["", "1"], ["x"]),
    ("star", {"type": "star", "content": tag("[", INT, "]")}, ["", "[1]", "[1][2]"], ["[", "[1]["]),
    ("plus", {"type": "plus", "content": text("ab")}, ["ab", "abab"], ["", "aba"]),
    ("repeat", {"type": "repeat", "min": 1, "max": 2, "content": tag("[", INT, "]")}, ["[1]", "[1][2]"], ["", "[1][2][3]"]),
    ("separated", {"type": "tags_with_separator", "separator": ",", "tags": TAGS},
     ["", "<f>1</f>", "<f>1</f>,<fx>a</fx>"], ["<f>1</f>,", ",", "x", "<f>1</f><f>1</f>"]),
    ("separated one",
     {"type": "tags_with_separator", "separator": ", ", "tags": TAGS, "at_least_one": True, "stop_after_first": True},
     ["<f>1</f>"], ["", "<f>1</f>, <f>1</f>"]),
    ("think", {"type": "sequence", "elements": [tag("<think>", ANY, "</think>"), triggered(at_least_one=True)]},
     ["<think>a</think><f>1</f>", "<think></think><f>1</f> x"], ["<think>a</think>", "<f>1</f>", "<think>a</think>x<f>1</f>"]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "valid", "violating"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_same_texts_pass(backend: GrammarBackend, form: Any, valid: list[str], violating: list[str]) -> None:
    compiled = grammar(backend, "structural_tag", {"type": "structural_tag", "format": form})
    assert [one for one in valid if not takes(compiled, one)] == []
    assert [one for one in violating if takes(compiled, one)] == []


def test_the_elder_shape_is_triggered_tags(backend: GrammarBackend) -> None:
    structures = [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}]
    compiled = grammar(
        backend, "structural_tag", {"type": "structural_tag", "structures": structures, "triggers": ["<f"]}
    )
    assert takes(compiled, "hi <f>1</f> bye")
    assert not takes(compiled, "hi <f>x</f>")


@pytest.mark.parametrize(
    ("tagged", "pointer", "word"),
    [
        ("[", "", "no JSON"),
        ([], "/", "object"),
        ({"type": "structural_tag"}, "/", "format"),
        ({"format": {"type": "anything"}}, "/format/type", "any_text"),
        ({"format": {"type": "const_string"}}, "/format/value", "missing"),
        ({"format": {"type": "any_text", "max_tokens": 5}}, "/format/max_tokens", "no field"),
        ({"format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}}, "/format/style", "json"),
        ({"format": {"type": "json_schema", "json_schema": {"type": "strng"}}}, "/format/json_schema/type", "string"),
        ({"format": {"type": "json_schema", "json_schema": {"uniqueItems": True}}}, "/format/json_schema/uniqueItems", "honour"),
        ({"format": {"type": "regex", "pattern": "((("}}, "structural tag, /format/pattern", "not closed"),
        ({"format": {"type": "grammar", "grammar": "root ::= ("}}, "line 1, column 10", "/format/grammar"),
        ({"format": {"type": "sequence", "elements": []}}, "/format/elements", "not empty"),
        ({"format": {"type": "repeat", "min": 3, "max": 1, "content": ANY}}, "/format/max", "whole numbers"),
        ({"format": triggered(triggers=["<x"])}, "/format/tags/0/begin", "triggers"),
        ({"format": triggered(triggers=[])}, "/format/triggers", "not empty"),
        ({"format": triggered(tags=[ANY])}, "/format/tags/0", "tag"),
        ({"format": tag("<a>", ANY, "")}, "/format/end", "empty"),
        ({"structures": [{"begin": "a"}], "triggers": ["a"]}, "/structures/0", "schema"),
    ],
)  # fmt: skip
def test_b68_what_is_malformed_is_named_with_its_place(
    backend: GrammarBackend, tagged: Any, pointer: str, word: str
) -> None:
    with pytest.raises(GrammarError) as caught:
        grammar(backend, "structural_tag", tagged)
    assert caught.value.keyword == pointer
    assert word in caught.value.message


def test_marks_that_are_special_tokens() -> None:
    """No text reaches such a token; a tag names it, by id or by what it looks like."""
    vocab = [*(bytes([byte]) for byte in range(256)), b"", b""]
    backend = make("llguidance", vocab, (257,), {"<call>": 256})
    for mark in (256, "<call>"):
        token = {"type": "token", "token": mark}
        form = {"type": "sequence", "elements": [text("a"), tag(token, INT, token)]}
        matcher = grammar(backend, "structural_tag", {"format": form}).matcher()
        for wanted, other in ((97, 256), (256, 97), (55, 97), (256, 97)):
            mask = np.zeros(9, dtype=np.uint32)
            matcher.fill(mask)
            assert mask[wanted // 32] >> (wanted % 32) & 1
            assert not matcher.accept(other)
            assert matcher.accept(wanted)
        assert complete(matcher)
    for unknown, word in (("<none>", "no special token"), (10**6, "no token id")):
        with pytest.raises(GrammarError, match=word):
            grammar(backend, "structural_tag", {"format": {"type": "token", "token": unknown}})
    with pytest.raises(GrammarError, match="special tokens"):
        grammar(make("xgrammar", vocab, (257,), {"<call>": 256}), "structural_tag", {"format": form})


def test_formats_nest_to_a_limit() -> None:
    form: Any = ANY
    for _ in range(40):
        form = {"type": "optional", "content": form}
    with pytest.raises(GrammarError, match="deep"):
        read_structural_tag(json.dumps({"format": form}), lambda at, schema: schema)
