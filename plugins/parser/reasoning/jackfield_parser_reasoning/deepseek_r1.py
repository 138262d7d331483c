"""Parser `deepseek-r1`: a model that always reasons first."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_reasoning.tags import TagParser

    return TagParser("<think>", "</think>", always=True)
