"""Whether a chat template reads a message's content as one string or as a list of parts, seen from its syntax tree.

"string": it uses `message.content` as text. "openai": it loops over the parts, or indexes them. Knows syntax only; what
is done with the answer is `template_manager`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jinja2 import nodes


@dataclass(frozen=True)
class ContentFormat:
    """kind: how it reads content. takes_both: it asks which of the two it was given, so a string may stay a string."""

    kind: Literal["string", "openai"]
    takes_both: bool


def content_format(tree: nodes.Template) -> ContentFormat:
    names = _names_of_content(tree)
    loops = any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))
    # {{ message.content[0].text }}, but not content[0], which may be a character.
    indexes = any(
        isinstance(item.node, nodes.Getitem)
        and isinstance(item.node.arg, nodes.Const)
        and isinstance(item.node.arg.value, int)
        and _is_content(item.node.node, names)
        for item in tree.find_all((nodes.Getattr, nodes.Getitem))
        if isinstance(item, nodes.Getattr | nodes.Getitem)
    )
    asks = any(
        test.name in ("string", "iterable", "sequence") and _is_content(test.node, names)
        for test in tree.find_all(nodes.Test)
    )
    return ContentFormat("openai" if loops or indexes else "string", asks)


def _names_of_content(tree: nodes.Template) -> set[str]:
    """Variables and macro parameters that hold a message's content. Scopes are not told apart: a name that holds content
    anywhere is taken to hold it everywhere."""
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    names: set[str] = set()
    while True:
        before = len(names)
        for assignment in tree.find_all(nodes.Assign):
            if isinstance(assignment.target, nodes.Name) and _is_content(assignment.node, names):
                names.add(assignment.target.name)
        for call in tree.find_all(nodes.Call):
            macro = macros.get(call.node.name) if isinstance(call.node, nodes.Name) else None
            if macro is not None:
                passed = zip(call.args, macro.args, strict=False)
                names.update(parameter.name for value, parameter in passed if _is_content(value, names))
        if len(names) == before:
            return names


def _is_content(node: nodes.Node | None, names: set[str]) -> bool:
    if isinstance(node, nodes.Filter):
        return _is_content(node.node, names)
    if isinstance(node, nodes.CondExpr):
        return _is_content(node.expr1, names) or _is_content(node.expr2, names)
    if isinstance(node, nodes.Name):
        return node.name in names
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "content"
