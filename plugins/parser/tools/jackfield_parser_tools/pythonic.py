"""Parser `pythonic`: a list of calls as Python writes them: Llama 4, Llama 3.2's small models, LFM2, ToolACE."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_tools.pythonic_format import PythonicParser

    return PythonicParser()
