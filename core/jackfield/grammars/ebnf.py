"""Grammars in EBNF, read: the rules as trees of `regex_syntax` with references, and what can be said of them as a whole.

The dialect is llama.cpp's GBNF as xgrammar reads it too; `ebnf_reader` describes it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jackfield.grammars.ebnf_reader import EbnfReader
from jackfield.grammars.finite import Finite
from jackfield.grammars.regex_syntax import Choice, Concat, Node, Ref, Repeat, positions
from jackfield.hookspecs.grammar import GrammarError

MOST_EXPANDED = 200_000
"""Characters that all rules come to with their repetitions written out."""


@dataclass(frozen=True)
class Ebnf:
    """rules: name -> tree, `root` among them; all that are referred to are there.
    order: the names, inner ones first; None if a rule refers to itself, directly or round a corner."""

    rules: Mapping[str, Node]
    order: tuple[str, ...] | None


def read_ebnf(source: str, *, where: str = "the EBNF grammar") -> Ebnf:
    """Raises GrammarError that names line and column."""
    reader = EbnfReader(source, where)
    rules = reader.read()
    if "root" not in rules:
        raise GrammarError(f"{where} has no rule `root`, where the answer begins", keyword="root")
    for name, at in reader.references:
        if name not in rules:
            near = difflib.get_close_matches(name, rules, 1)
            raise reader.error(f"no rule is called {name!r}{f'; did you mean {near[0]!r}?' if near else ''}", at)
    if (size := sum(map(positions, rules.values()))) > MOST_EXPANDED:
        raise GrammarError(
            f"{where} comes to {size:,} characters once its repetitions are written out; {MOST_EXPANDED:,} are the most"
        )
    _refuse_endless(rules, where)
    return Ebnf(rules, _inner_first(rules))


def inner(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Concat):
        return node.parts
    if isinstance(node, Choice):
        return node.options
    return (node.part,) if isinstance(node, Repeat) else ()


def references(node: Node) -> Iterator[str]:
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, Ref):
            yield item.name
        stack.extend(inner(item))


def _refuse_endless(rules: Mapping[str, Node], where: str) -> None:
    finite = Finite()
    count = 0
    stack: list[tuple[str, Node]] = [(f"rule {name}", node) for name, node in rules.items()]
    while stack:
        item, node = stack.pop()
        finite.add(item)
        if isinstance(node, Ref):
            finite.require(item, [f"rule {node.name}"])
        parts: list[str] = []
        for part in inner(node):
            count += 1
            parts.append(f"part {count}")
            stack.append((parts[-1], part))
        if isinstance(node, Choice):
            finite.require(item, parts)
        elif not (isinstance(node, Repeat) and node.least == 0):
            for part_name in parts:
                finite.require(item, [part_name])
    if "rule root" not in finite.met():
        raise GrammarError(f"{where}: no text ends; rules require themselves without a way out", keyword="root")


def _inner_first(rules: Mapping[str, Node]) -> tuple[str, ...] | None:
    order: dict[str, None] = {}
    for start in rules:
        path = [(start, references(rules[start]))]
        on_path = {start}
        while path and start not in order:
            name, rest = path[-1]
            following = next((other for other in rest if other not in order), None)
            if following is None:
                order[name] = None
                on_path.discard(name)
                path.pop()
            elif following in on_path:
                return None
            else:
                on_path.add(following)
                path.append((following, references(rules[following])))
    return tuple(order)


def one_tree(grammar: Ebnf, most: int) -> Node | None:
    """A grammar without recursion as a single tree without references; None if there is none of up to `most` positions."""
    if grammar.order is None:
        return None
    sizes: dict[str, int] = {}
    for name in grammar.order:
        sizes[name] = _size(grammar.rules[name], sizes)
        if sizes[name] > most:
            return None
    trees: dict[str, Node] = {}
    for name in grammar.order:
        trees[name] = _inlined(grammar.rules[name], trees)
    return trees["root"]


def _size(node: Node, sizes: Mapping[str, int]) -> int:
    if isinstance(node, Ref):
        return sizes[node.name]
    parts = [_size(part, sizes) for part in inner(node)]
    if isinstance(node, Repeat):
        return parts[0] * max(1, node.least + 1 if node.most is None else node.most)
    return sum(parts) if parts else 1


def _inlined(node: Node, trees: Mapping[str, Node]) -> Node:
    if isinstance(node, Ref):
        return trees[node.name]
    if isinstance(node, Concat):
        return Concat(tuple(_inlined(part, trees) for part in node.parts))
    if isinstance(node, Choice):
        return Choice(tuple(_inlined(part, trees) for part in node.options))
    return Repeat(_inlined(node.part, trees), node.least, node.most) if isinstance(node, Repeat) else node
