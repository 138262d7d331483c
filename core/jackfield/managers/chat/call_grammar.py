"""How the calls of an answer are bound and read: the model's own format where a parser and the grammar backend know it, else a
plain list. Knows no template and no request.

Policies
  strict      a schema is kept in full, or the request is refused
  not strict  a schema that the backend does not honour binds nothing: such a call has any object as its arguments, as OpenAI
              promises no more
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.hookspecs.parser import TextStream, Tool, ToolCallParser
from jackfield.managers.chat.plain_calls import PlainCalls, plain_grammar
from jackfield.managers.chat.response_format import json_text
from jackfield.managers.chat.tools import ToolUse
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.grammar import Grammars

Streams = Callable[[], TextStream]


def required_calls(use: ToolUse, parser: ToolCallParser | None, grammars: Grammars) -> tuple[Streams, GrammarSpec]:
    """The answer is calls and nothing else."""
    tools = kept(use.callable, grammars)
    if parser is not None:
        grammar = parser.grammar(tools, required=True, parallel=use.parallel)
        if grammar is not None and grammars.takes(grammar):
            return _reader(parser, use.callable), grammar
    return lambda: PlainCalls(use.callable), plain_grammar(tools, parallel=use.parallel)


def possible_calls(
    use: ToolUse, parser: ToolCallParser | None, grammars: Grammars
) -> tuple[Streams, GrammarSpec | None]:
    """Free text, in which calls may stand. Raises RequestError naming what is missing."""
    if parser is None:
        raise RequestError(
            "tools: the format in which this model writes calls is not known here. Start the server with "
            '--tool-call-parser NAME, or say tool_choice "required"',
            param="tools",
            code="not_supported",
        )
    streams = _reader(parser, use.callable)
    if not any(tool.strict for tool in use.callable):
        return streams, None
    grammar = parser.grammar(kept(use.callable, grammars), required=False, parallel=use.parallel)
    if grammar is None:
        raise RequestError(
            "tools: strict calls cannot be had beside free text in this model's format: leave strict out, or say "
            'tool_choice "required"',
            param="tools",
            code="not_supported",
        )
    return streams, grammar


def kept(tools: Sequence[Tool], grammars: Grammars) -> tuple[Tool, ...]:
    """The tools with those schemas that a grammar is to keep to."""
    return tuple(tool if tool.strict or _honoured(tool, grammars) else replace(tool, parameters={}) for tool in tools)


def _honoured(tool: Tool, grammars: Grammars) -> bool:
    return not tool.parameters or grammars.takes(GrammarSpec(form="json_schema", source=json_text(tool.parameters)))


def _reader(parser: ToolCallParser, tools: tuple[Tool, ...]) -> Streams:
    return lambda: parser.stream(tools)
