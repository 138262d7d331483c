"""A pattern of a string's characters, without those that JSON writes otherwise between the quotes.

xgrammar puts a `pattern` into its grammar as if JSON wrote every character as itself. A quote then ends the string in some
patterns and is dropped in others, whether escaped or not. So what reaches it holds none of them: each class is cut down to
the characters that JSON writes as themselves, and a pattern that cannot do without the others is refused.
"""

from __future__ import annotations

from jackfield.grammars.regex_syntax import Chars, Choice, Concat, Node, Ranges, Repeat, complement, union

_WRITTEN_OTHERWISE: Ranges = union(((0x00, 0x1F),), ((0x22, 0x22),), ((0x5C, 0x5C),))


def json_text(node: Node) -> Node:
    """The tree of the texts without such characters. ValueError if there is a part of it that needs one."""
    if isinstance(node, Chars):
        plain = complement(union(complement(node.ranges), _WRITTEN_OTHERWISE))
        if not plain:
            raise ValueError("xgrammar cannot write a quote, a backslash or a control character in a pattern")
        return Chars(plain)
    if isinstance(node, Concat):
        return Concat(tuple(map(json_text, node.parts)))
    if isinstance(node, Choice):
        return Choice(tuple(map(json_text, node.options)))
    if isinstance(node, Repeat):
        return Repeat(json_text(node.part), node.least, node.most)
    raise TypeError(f"{node} is no part of a pattern")
