"""Parser `think`: reasoning between two tags."""

from __future__ import annotations

from jackfield.hookspecs import Parser, ParserContext, hookimpl


@hookimpl
def jackfield_parser(context: ParserContext) -> Parser:
    from jackfield_parser_reasoning.options import ThinkOptions
    from jackfield_parser_reasoning.tags import TagParser

    options = context.options
    assert isinstance(options, ThinkOptions)
    return TagParser(
        options.start, options.end, always=options.always, special=options.special, template=context.chat_template
    )
