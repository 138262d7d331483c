"""EBNF on the backends: the language is the grammar's, told by a recogniser that tries everything."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from jackfield.grammars.ebnf import read_ebnf
from jackfield.grammars.regex_syntax import Chars, Choice, Concat, Node, Ref
from jackfield.hookspecs import GrammarBackend
from tests.unit.grammars.backends import grammar, takes


def language(source: str, alphabet: str, most: int) -> set[str]:
    """All texts of up to `most` characters that the grammar allows."""
    rules = read_ebnf(source).rules
    every = ["".join(text) for length in range(most + 1) for text in itertools.product(alphabet, repeat=length)]
    return {text for text in every if len(text) in _ends(rules, text).get(("root", 0), ())}


def _ends(rules: Mapping[str, Node], text: str) -> dict[tuple[str, int], frozenset[int]]:
    known = {(name, at): frozenset[int]() for name in rules for at in range(len(text) + 1)}

    def ends(node: Node, at: int) -> frozenset[int]:
        if isinstance(node, Chars):
            fits = at < len(text) and any(low <= ord(text[at]) <= high for low, high in node.ranges)
            return frozenset({at + 1} if fits else ())
        if isinstance(node, Ref):
            return known[node.name, at]
        if isinstance(node, Choice):
            return frozenset().union(*(ends(option, at) for option in node.options))
        parts = list(node.parts) if isinstance(node, Concat) else [node.part] * node.least
        reached = {at}
        for part in parts:
            reached = {end for start in reached for end in ends(part, start)}
        if not isinstance(node, Concat):
            rest = len(text) + 1 if node.most is None else node.most - node.least
            edge = set(reached)
            for _ in range(rest):
                edge = {end for start in edge for end in ends(node.part, start)} - reached
                reached |= edge
        return frozenset(reached)

    while True:
        found = {(name, at): ends(rules[name], at) for name, at in known}
        if found == known:
            return known
        known = found


@pytest.mark.parametrize(
    "source",
    [
        'root ::= "a" [b-c]* | "ca"?',
        'root ::= x "b"\nx ::= [a-c]*',
        'root ::= x "b"\nx ::= [a-c]* | "(" x ")"',
        'root ::= "ab" "c" | [a-c]{1,2} "("',
        'root ::= e\ne ::= e "a" | "b" | "(" e ")"',
        'root ::= ("a" | "b" root "c")*',
        'root ::= a{2,3} | ""\na ::= [^a(] | "a" a',
        'root ::= (("a"?)* "b"?)*',
        'root ::= a* b\na ::= "a" | "a" a\nb ::= | "c" b',
        'root ::= ("a"{2}){1,2} ("b"{0,1}){2}',
    ],
)
def test_the_language_is_the_grammar_s(backend: GrammarBackend, source: str) -> None:
    compiled = grammar(backend, "ebnf", source)
    alphabet, most = "abc()", 4
    allowed = language(source, alphabet, most)
    for length in range(most + 1):
        for text in map("".join, itertools.product(alphabet, repeat=length)):
            assert takes(compiled, text) == (text in allowed), text


def test_characters_of_all_kinds(backend: GrammarBackend) -> None:
    source = r'root ::= "\"\\\n\t\x41\u65e5" [\]\-\^a/] . [^a-z\\"] item{2}' + '\nitem ::= "😀" | [à-é] | "{" | "]"\n'
    compiled = grammar(backend, "ebnf", source)
    for marks, any_char, other, items in (
        ("]", "\n", "日", "😀é"),
        ("^", '"', "A", "{]"),
        ("-", "😀", "\n", "àà"),
        ("/", "x", "]", "é{"),
    ):
        text = '"\\\n\tA日' + marks + any_char + other + items
        assert takes(compiled, text), text
    for bad in ('"\\\n\tA日bxA{{', '"\\\n\tA日]xa{{', '"\\\n\tA日]x"{{', '"\\\n\tA日]xA{', '"\\\n\tB日]xA{{'):
        assert not takes(compiled, bad), bad
