"""Parser `mistral-think`: Mistral's tags, which are special tokens."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_reasoning.tags import TagParser

    return TagParser("[THINK]", "[/THINK]", special=True)
