"""`/parse_function_call` and `/separate_reasoning`: a text that a model wrote, read by the parsers of this run as a chat's answer
would be. Nothing is generated.

Policy: the server reads the format of the model that it serves; another parser's name is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, Reply, json_response
from jackfield.entrypoints.http.schemas.parsing import ParseFunctionCallBody, SeparateReasoningBody
from jackfield.hookspecs import CallArguments, CallBegin, Content, Piece, Reasoning, TextStream
from jackfield.managers.chat.tools import checked_tools
from jackfield.managers.errors import shown
from jackfield.managers.fields.limits import RequestLimits
from jackfield.managers.fields.schema_size import check_schema

P = TypeVar("P")


async def parse_function_call(exchange: Exchange) -> Reply:
    body: ParseFunctionCallBody = exchange.body
    parsers = exchange.service.serving.replica.parsers
    parser = _asked(exchange, parsers.tool_calls, "tool_calls", "tool_call_parser", body.tool_call_parser)
    _check_length(exchange, body.text)
    limits = RequestLimits.of(exchange.service.args)
    check_schema("tools", body.tools, limits)
    tools = [tool for tool, _ in checked_tools(body.tools, limits.max_tools)]
    pieces = await exchange.service.in_thread(_all(lambda: parser.stream(tools), body.text))
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, CallBegin):
            calls.append({"tool_index": len(calls), "name": piece.name, "parameters": ""})
        elif isinstance(piece, CallArguments):
            calls[-1]["parameters"] += piece.text
    return json_response({"normal_text": _joined(pieces, Content), "calls": calls})


async def separate_reasoning(exchange: Exchange) -> Reply:
    body: SeparateReasoningBody = exchange.body
    parsers = exchange.service.serving.replica.parsers
    parser = _asked(exchange, parsers.reasoning, "reasoning", "reasoning_parser", body.reasoning_parser)
    _check_length(exchange, body.text)
    opened = parser.opened("") if body.opened is None else body.opened
    pieces = await exchange.service.in_thread(_all(lambda: parser.stream(opened=opened), body.text))
    return json_response({"reasoning_text": _joined(pieces, Reasoning), "text": _joined(pieces, Content)})


def _asked(exchange: Exchange, parser: P | None, part: str, field: str, name: str | None) -> P:
    """The run's parser of this part, if the client names no other."""
    flag = "--" + field.replace("_", "-")
    selected = exchange.service.serving.replica.resolution.stack.one("parser", part)
    if parser is None or selected is None:
        raise ApiError(
            400, f"this server runs without a parser of this sort: start it with {flag} NAME", code="not_supported"
        )
    if name is not None and name != selected.name:
        raise ApiError(
            400,
            f"{field} {shown(name)} is not the one that this server runs with, which is {selected.name!r} ({flag})",
            param=field,
            code="invalid_value",
        )
    return parser


def _check_length(exchange: Exchange, text: str) -> None:
    most = exchange.service.args.max_tokenize_length
    if len(text) > most:
        raise ApiError(
            400,
            f"text has {len(text)} characters; at most {most} are allowed (--max-tokenize-length)",
            param="text",
            code="invalid_value",
        )


def _all(stream: Callable[[], TextStream], text: str) -> Callable[[], list[Piece]]:
    def work() -> list[Piece]:
        reader = stream()
        return [*reader.feed(text), *reader.finish()]

    return work


def _joined(pieces: list[Piece], sort: type[Content] | type[Reasoning]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, sort))
