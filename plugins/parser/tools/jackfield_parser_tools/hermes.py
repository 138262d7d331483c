"""Parser `hermes`: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, which Qwen 2.5 and 3 and the Hermes models write."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_tools.hermes_format import HermesParser

    return HermesParser()
