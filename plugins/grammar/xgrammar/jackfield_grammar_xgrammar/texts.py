"""EBNF and structural tags in xgrammar's own words, written anew from what was read, so that nothing reaches xgrammar that was
not checked and understood."""

from __future__ import annotations

from typing import Any

from jackfield.grammars.ebnf import Ebnf
from jackfield.grammars.regex_syntax import EVERY, Chars, Choice, Concat, Node, Ref, complement, regex_text
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
)
from jackfield.hookspecs import GrammarError
from jackfield_grammar_xgrammar.schema import MOST_WHITESPACE, json_grammar


def ebnf_text(grammar: Ebnf) -> str:
    return "".join(f"{_name(name)} ::= {_expression(node)}\n" for name, node in grammar.rules.items())


def _name(name: str) -> str:
    # Its own names, in case one is taken by xgrammar for something else.
    return "root" if name == "root" else f"rule_{name}"


def _expression(node: Node) -> str:
    if isinstance(node, Chars):
        return _class(node)
    if isinstance(node, Ref):
        return _name(node.name)
    if isinstance(node, Concat):
        return "(" + " ".join(map(_expression, node.parts)) + ")" if node.parts else '""'
    if isinstance(node, Choice):
        return "(" + " | ".join(map(_expression, node.options)) + ")"
    part = f"({_expression(node.part)})"
    if (node.least, node.most) in ((0, None), (1, None), (0, 1)):
        return part + {(0, None): "*", (1, None): "+", (0, 1): "?"}[node.least, node.most]
    return f"{part}{{{node.least},{'' if node.most is None else node.most}}}"


def _class(node: Chars) -> str:
    other = complement(node.ranges)
    negated = len(other) < len(node.ranges)
    spans = "".join(
        _char(low) if low == high else f"{_char(low)}-{_char(high)}"
        for low, high in (other if negated else node.ranges)
    )
    if not spans:  # every character there is
        spans, negated = f"{_char(EVERY[0][0])}-{_char(EVERY[-1][1])}", False
    return f"[{'^' if negated else ''}{spans}]"


def _char(code: int) -> str:
    return chr(code) if chr(code).isalnum() and code < 0x80 else f"\\U{code:08x}"


def tag_json(tag: Format) -> dict[str, Any]:
    """Raises GrammarError for what xgrammar cannot do."""
    return {"type": "structural_tag", "format": _format(tag)}


def _format(item: Format) -> dict[str, Any]:
    if isinstance(item, Text):
        return {"type": "const_string", "value": item.value}
    if isinstance(item, Token):
        # It takes none for a token without a text; with a made-up text, its free text would let the token through anywhere.
        raise GrammarError(
            "structural tag: xgrammar cannot name special tokens; llguidance can", keyword=str(item.token)
        )
    if isinstance(item, AnyText):
        return {"type": "any_text", "excludes": list(item.excludes)}
    if isinstance(item, Json):
        schema = json_grammar(item.schema)
        return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": MOST_WHITESPACE}
    if isinstance(item, Pattern):
        return {"type": "regex", "pattern": regex_text(item.tree)}
    if isinstance(item, Grammar):
        return {"type": "grammar", "grammar": ebnf_text(item.grammar)}
    if isinstance(item, InOrder | Or):
        kind = "sequence" if isinstance(item, InOrder) else "or"
        return {"type": kind, "elements": [_format(part) for part in item.elements]}
    if isinstance(item, Repeated):
        most = -1 if item.most is None else item.most
        return {"type": "repeat", "min": item.least, "max": most, "content": _format(item.content)}
    if isinstance(item, Tag):
        return _tag(item)
    flags = {"at_least_one": item.at_least_one, "stop_after_first": item.stop_after_first}
    tags = [_tag(tag) for tag in item.tags]
    if isinstance(item, SeparatedTags):
        return {"type": "tags_with_separator", "tags": tags, "separator": item.separator} | flags
    lists = {"triggers": list(item.triggers), "excludes": list(item.excludes)}
    return {"type": "triggered_tags", "tags": tags} | lists | flags


def _tag(item: Tag) -> dict[str, Any]:
    ends = [_mark(end) for end in item.ends]
    end = ends[0] if len(ends) == 1 else ends
    return {"type": "tag", "begin": _mark(item.begin), "content": _format(item.content), "end": end}


def _mark(mark: Text | Token) -> Any:
    return mark.value if isinstance(mark, Text) else _format(mark)
