"""How the calls of an answer are bound and read: the model's own format where a parser and the grammar backend know it, else a
plain list. Knows no template and no request.

Policies
  strict      a schema is kept in full, or the request is refused
  format      beside calls that the model may make, an answer without calls keeps to `response_format`
  not strict  a schema that the backend does not honour binds nothing: such a call has any object as its arguments, as OpenAI
              promises no more
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
    parser = _known(parser)
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


def calls_or_answer(
    use: ToolUse, parser: ToolCallParser | None, grammars: Grammars, wanted: GrammarSpec
) -> tuple[Streams, GrammarSpec]:
    """Calls and nothing else, or a text that keeps to `wanted`. Raises RequestError if the model's format has no such grammar."""
    parser = _known(parser)
    tools = kept(use.callable, grammars)
    calls = parser.grammar(tools, required=True, parallel=use.parallel)
    # A format whose calls cannot stand beside text does not tell a call from an object of the answer's.
    apart = calls is not None and parser.grammar(tools, required=False, parallel=use.parallel) is not None
    answer = _format(wanted)
    if calls is None or not apart or answer is None or (calls_format := _format(calls)) is None:
        raise RequestError(
            "response_format cannot be kept beside calls that the model may make, in this model's format: leave one of them out, "
            'or say tool_choice "none" or "required"',
            param="response_format",
            code="not_supported",
        )
    either = {"type": "structural_tag", "format": {"type": "or", "elements": [calls_format, answer]}}
    return _reader(parser, use.callable), GrammarSpec(form="structural_tag", source=json_text(either))


def _format(grammar: GrammarSpec) -> dict[str, Any] | None:
    """As a part of a structural tag; None: it is none."""
    if grammar.form == "json_schema":
        return {"type": "json_schema", "json_schema": json.loads(grammar.source)}
    if grammar.form == "structural_tag":
        found: dict[str, Any] | None = json.loads(grammar.source).get("format")
        return found
    return None


def _known(parser: ToolCallParser | None) -> ToolCallParser:
    if parser is None:
        raise RequestError(
            "tools: the format in which this model writes calls is not known here. Start the server with "
            '--tool-call-parser NAME, or say tool_choice "required"',
            param="tools",
            code="not_supported",
        )
    return parser


def kept(tools: Sequence[Tool], grammars: Grammars) -> tuple[Tool, ...]:
    """The tools with those schemas that a grammar is to keep to."""
    return tuple(tool if tool.strict or _honoured(tool, grammars) else replace(tool, parameters={}) for tool in tools)


def _honoured(tool: Tool, grammars: Grammars) -> bool:
    return not tool.parameters or grammars.takes(GrammarSpec(form="json_schema", source=json_text(tool.parameters)))


def _reader(parser: ToolCallParser, tools: tuple[Tool, ...]) -> Streams:
    return lambda: parser.stream(tools)
