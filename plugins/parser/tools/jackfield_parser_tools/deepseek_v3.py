"""Parser `deepseek-v3`: DeepSeek V3, R1 and V3.1."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_tools.deepseek_format import DeepSeekParser

    return DeepSeekParser(context.chat_template)
