"""EBNF is read into trees; what is malformed is refused with line and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.grammars.ebnf import one_tree, read_ebnf
from jackfield.grammars.regex_syntax import regex_text
from jackfield.hookspecs import GrammarError
from tests.unit.grammars.backends import refusal


def test_a_grammar_without_recursion_is_one_pattern() -> None:
    source = 'root ::= "a" item ("," item)* # comment\n  | ""\nitem ::= [x-z]{1,2} | "\\u65e5"\n'
    tree = one_tree(read_ebnf(source), 100)
    assert tree is not None
    assert regex_text(tree) == "(?:a(?:[x-z]{1,2}|日)(?:\\u{2c}(?:[x-z]{1,2}|日))*|)"
    assert one_tree(read_ebnf(source), 3) is None


def test_recursion_is_seen() -> None:
    assert read_ebnf('root ::= "(" root ")" | "x"').order is None
    assert read_ebnf('root ::= a\na ::= b "x"\nb ::= "y"').order == ("b", "a", "root")


def test_rules_that_double_are_not_written_out() -> None:
    source = "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(60)) + 'r60 ::= "x"'
    assert one_tree(read_ebnf(source), 10_000) is None


@pytest.mark.parametrize(
    ("source", "place", "word"),
    [
        ("root ::= (", "line 1, column 10", "not closed"),
        ('root ::= "a', "line 1, column 10", "not closed"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "there already"),
        ('root ::= itme\nitem ::= "x"', "line 1, column 10", "did you mean 'item'"),
        ('root = "a"', "line 1, column 1", "`::=`"),
        ("root ::= [z-a]", "line 1, column 11", "comes before"),
        ("root ::= []\n", "line 1, column 10", "no character"),
        ('root ::= "a"{2,1}', "line 1, column 13", "no repetition"),
        ('root ::= "\\q"', "line 1, column 11", "no escape"),
        ("root ::= 'a'", "line 1, column 10", "begins no term"),
        ("root ::= " + "(" * 100, "line 1, column 61", "deep"),
        ('other ::= "x"', "root", "no rule `root`"),
        ('root ::= "a" root', "root", "no text ends"),
        ('root ::= ("a"{1,1000}){1,1000}', "", "written out"),
    ],
)
def test_b68_what_is_malformed_is_named_with_its_place(source: str, place: str, word: str) -> None:
    with pytest.raises(GrammarError) as caught:
        read_ebnf(source)
    assert caught.value.keyword == place
    assert word in caught.value.message


@given(st.text(alphabet='root:= "a[]()|*+?{},1-\\\n#x.', max_size=40))
def test_b68_any_text_is_read_or_refused(text: str) -> None:
    assert refusal(lambda: read_ebnf("root ::= " + text)) != ""
