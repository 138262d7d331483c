"""Parser `qwen3-coder`: <function=name> with <parameter=name> in it, each value as plain text."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_tools.qwen3_coder_format import QwenCoderParser

    return QwenCoderParser()
