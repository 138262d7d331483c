"""Parser `mistral`: what stands behind [TOOL_CALLS], a list of JSON objects or a name and its arguments."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_tools.mistral_format import MistralParser

    return MistralParser(context.chat_template)
