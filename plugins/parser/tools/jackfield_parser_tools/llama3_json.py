"""Parser `llama3-json`: {"name": ..., "parameters": {...}} as the whole answer, or behind <|python_tag|>: Llama 3.1 to 3.3."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_tools.llama3_json_format import LlamaParser

    return LlamaParser()
