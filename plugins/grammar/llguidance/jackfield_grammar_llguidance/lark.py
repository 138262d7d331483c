"""EBNF and structural tags in llguidance's language, Lark.

llguidance cuts its input into lexemes, the longest that fits, before it parses. So that no text is lost that a grammar allows:

- What is regular as a whole becomes one lexeme.
- A recursive grammar becomes one of single characters, which nothing can cut wrongly.
- Free text ends at the first of the marks behind it (a lazy lexeme), as in xgrammar.

What follows JSON or a recursive grammar in a structural tag begins at a lexeme of its own: a number, which has no end, must not
be followed by text that could go on with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from jackfield.grammars.ebnf import Ebnf, one_tree
from jackfield.grammars.regex_syntax import (
    MOST_POSITIONS,
    Chars,
    Choice,
    Concat,
    Node,
    Ref,
    Repeat,
    literal,
    positions,
    regex_text,
)
from jackfield.grammars.structural_tags import (
    AnyText,
    Format,
    Grammar,
    InOrder,
    Json,
    Or,
    Pattern,
    Repeated,
    SeparatedTags,
    Tag,
    Text,
    Token,
    TriggeredTags,
    token_id,
)
from jackfield.hookspecs import GrammarError
from jackfield_grammar_llguidance.schema import json_grammar

ANY = "/(?s:.)*/"


def lark_of_ebnf(grammar: Ebnf) -> str:
    """The rules, `start` first."""
    lark = _Lark({}, 0)
    start = lark.ebnf(grammar)
    return lark.text(start)


def lark_of_tag(tag: Format, special: Mapping[str, int], vocab_size: int) -> str:
    """special: text of each special token -> its id. Raises GrammarError for free text whose end cannot be told."""
    lark = _Lark(special, vocab_size)
    return lark.text(lark.format(tag, last=True))


def _counts(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    return short.get((least, most), f"{{{least},{'' if most is None else most}}}")


class _Lark:
    """Collects rules; each method gives an expression that refers to them."""

    def __init__(self, special: Mapping[str, int], vocab_size: int) -> None:
        self.special, self.vocab_size = special, vocab_size
        self.rules: list[str] = []
        self.made = 0

    def text(self, start: str) -> str:
        return "".join(f"{line}\n" for line in [f"start: {start}", *self.rules])

    def name(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made}"

    def regular(self, node: Node) -> str:
        """One lexeme. One that fits the empty text may be left out."""
        pattern = regex_text(node)
        return f"/{pattern}/" if pattern else '""'

    def ebnf(self, grammar: Ebnf) -> str:
        if (tree := one_tree(grammar, MOST_POSITIONS)) is not None:
            return self.regular(tree)
        names = {name: self.name("r") for name in grammar.rules}
        for name, node in grammar.rules.items():
            self.rules.append(f"{names[name]}: {self.by_characters(node, names)}")
        return names["root"]

    def by_characters(self, node: Node, names: Mapping[str, str]) -> str:
        if isinstance(node, Chars):
            return f"/{regex_text(node)}/"
        if isinstance(node, Ref):
            return names[node.name]
        if isinstance(node, Concat):
            return "(" + " ".join(self.by_characters(part, names) for part in node.parts) + ")" if node.parts else '""'
        if isinstance(node, Choice):
            return "(" + " | ".join(self.by_characters(part, names) for part in node.options) + ")"
        return f"({self.by_characters(node.part, names)}){_counts(node.least, node.most)}"

    def format(self, item: Format, *, last: bool) -> str:
        """last: nothing follows it in the whole answer."""
        if (tree := _tree(item)) is not None:
            return self.regular(tree)
        if isinstance(item, Token):
            return f"<[{token_id(item, self.special, self.vocab_size)}]>"
        if isinstance(item, Json):
            return f"%json {json_grammar(item.schema)}"
        if isinstance(item, Grammar):
            return self.ebnf(item.grammar)
        if isinstance(item, AnyText):
            return self.free_end(item.excludes, last)
        if isinstance(item, Or):
            return "(" + " | ".join(self.format(part, last=last) for part in item.elements) + ")"
        if isinstance(item, Repeated):
            return f"({self.format(item.content, last=last and item.most == 1)}){_counts(item.least, item.most)}"
        if isinstance(item, SeparatedTags):
            return self.separated(item, last)
        if isinstance(item, TriggeredTags):
            return self.triggered(item, last)
        if isinstance(item, Tag):
            return self.in_order([item.begin, item.content, _ends(item)], last)
        if isinstance(item, InOrder):
            return self.in_order(list(item.elements), last)
        raise TypeError(f"{item} is no format")

    def in_order(self, items: Sequence[Format], last: bool) -> str:
        merged = _merged(items)
        parts = []
        skip = False
        for number, item in enumerate(merged):
            following = merged[number + 1] if number + 1 < len(merged) else None
            if skip:
                skip = False
            elif isinstance(item, AnyText) and following is not None:
                parts.append(self.free_until(item.excludes, following))
                skip = _tree(following) is not None
            else:
                parts.append(self.format(item, last=last and following is None))
        return "(" + " ".join(parts) + ")" if parts else '""'

    def free_until(self, excludes: Sequence[str], following: Format) -> str:
        """Free text that ends with the first text that the next format fits; or at a special token, which is no text."""
        tree = _tree(following)
        if tree is None:
            if isinstance(following, Token):
                return self.free(excludes)
            raise _endless()
        name = self.name("free")
        self.rules.append(f"{name}[lazy]: {self.free(excludes)} /{regex_text(tree)}/")
        return name

    def free_end(self, excludes: Sequence[str], last: bool) -> str:
        if not last:
            raise _endless()
        return self.free(excludes)

    def free(self, excludes: Sequence[str]) -> str:
        """A lexeme of free text without certain texts in it."""
        if not excludes:
            return ANY
        bad, name = self.name("BAD"), self.name("FREE")
        self.rules.append(f"{bad}: {ANY} ({' | '.join(map(_quoted, excludes))}) {ANY}")
        self.rules.append(f"{name}: {ANY} & ~{bad}")
        return name

    def triggered(self, item: TriggeredTags, last: bool) -> str:
        if not last:
            raise GrammarError(
                "structural tag: llguidance honours triggered_tags only where nothing follows them",
                keyword="triggered_tags",
            )
        options = []
        for trigger in item.triggers:
            name = self.name("free")
            self.rules.append(f"{name}[lazy]: {self.free(item.excludes)} {_quoted(trigger)}")
            for tag in item.tags:
                if isinstance(tag.begin, Text) and tag.begin.value.startswith(trigger):
                    rest = Text(tag.begin.value.removeprefix(trigger))
                    options.append(f"({name} {self.in_order([rest, tag.content, _ends(tag)], False)})")
        tagged = "(" + " | ".join(options) + ")"
        tail = self.free([*item.triggers, *item.excludes])
        first = "(" + " | ".join(self.format(tag, last=False) for tag in item.tags) + ")"
        if item.stop_after_first:
            return first if item.at_least_one else f"({tagged} | {tail})"
        return f"({first if item.at_least_one else ''} {tagged}* {tail})"

    def separated(self, item: SeparatedTags, last: bool) -> str:
        last = last and item.stop_after_first
        one = "(" + " | ".join(self.format(tag, last=last) for tag in item.tags) + ")"
        all_of_them = one if item.stop_after_first else f"({one} ({self.regular(literal(item.separator))} {one})*)"
        return all_of_them if item.at_least_one else f"({all_of_them})?"


def _endless() -> GrammarError:
    return GrammarError(
        "structural tag: llguidance cannot tell where this any_text ends: behind it must stand a text, a pattern or a special "
        "token, or nothing in the whole answer",
        keyword="any_text",
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _ends(tag: Tag) -> Format:
    return tag.ends[0] if len(tag.ends) == 1 else Or(tag.ends)


def _merged(items: Sequence[Format]) -> list[Format]:
    """Neighbours that are regular as one, empty texts left out."""
    merged: list[Format] = []
    for item in items:
        tree = _tree(item)
        before = _tree(merged[-1]) if merged and tree is not None else None
        if isinstance(item, Text) and not item.value:
            continue
        if tree is not None and before is not None:
            merged[-1] = Pattern(Concat((before, tree)))
        else:
            merged.append(item)
    return merged


def _tree(item: Format) -> Node | None:
    """A format as a regular expression, if it is one of no unreasonable size."""
    tree = _any_tree(item)
    return tree if tree is not None and positions(tree) <= MOST_POSITIONS else None


def _any_tree(item: Format) -> Node | None:
    if isinstance(item, Text):
        return literal(item.value)
    if isinstance(item, Pattern):
        return item.tree
    if isinstance(item, Grammar):
        return one_tree(item.grammar, MOST_POSITIONS)
    if isinstance(item, Repeated):
        part = _tree(item.content)
        return None if part is None else Repeat(part, item.least, item.most)
    if isinstance(item, InOrder | Or):
        parts = [_tree(part) for part in item.elements]
        if any(part is None for part in parts):
            return None
        found = tuple(part for part in parts if part is not None)
        return Concat(found) if isinstance(item, InOrder) else Choice(found)
    if isinstance(item, Tag):
        return _any_tree(InOrder((item.begin, item.content, _ends(item))))
    return None
