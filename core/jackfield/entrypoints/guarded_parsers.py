"""Parsers as the server calls them: metered, and with an end for an exception, which is the plugin's fault: the request that was
being read ends with an error, and nobody else's. Knows no format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from jackfield.hookspecs import (
    FaultScope,
    GrammarSpec,
    Piece,
    ReasoningParser,
    TextStream,
    Tool,
    ToolCallParser,
)
from jackfield.managers.errors import RequestError
from jackfield.stack.errors import PLUGIN_ERRORS
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter

P = ParamSpec("P")
R = TypeVar("R")

FAILED = "The parser of the model's answers failed."
"""What the client is told of a parser's own fault; its words go to the log."""


class ParserGuard:
    """Of one plugin. key: "parser.instance"."""

    def __init__(self, key: str, ledger: FaultLedger, meter: Meter) -> None:
        self._key = key
        self._ledger = ledger
        self._meter = meter

    def watched(self, method: str, function: Callable[P, R]) -> Callable[P, R]:
        """The plugin's function. What it makes raises RequestError, 500, for any exception, which the ledger has then."""
        metered = self._meter.wrap(self._key, method, function)

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return metered(*args, **kwargs)
            except PLUGIN_ERRORS as error:
                self._ledger.record(self._key, FaultScope.REQUEST, error)
                raise RequestError(FAILED, status_code=500) from error

        return call


class GuardedStream(TextStream):
    def __init__(self, stream: TextStream, guard: ParserGuard) -> None:
        # A list at once: a generator would fail where nobody watches it.
        self._feed = guard.watched("feed", lambda text: list(stream.feed(text)))
        self._finish = guard.watched("finish", lambda: list(stream.finish()))

    def feed(self, text: str) -> Sequence[Piece]:
        return self._feed(text)

    def finish(self) -> Sequence[Piece]:
        return self._finish()


class GuardedReasoning(ReasoningParser):
    def __init__(self, parser: ReasoningParser, guard: ParserGuard) -> None:
        self.end = parser.end
        self.template_switch = parser.template_switch
        self.keeps_special_tokens = parser.keeps_special_tokens
        self._guard = guard
        self._opened = guard.watched("opened", parser.opened)
        self._stream = guard.watched("stream", parser.stream)

    def opened(self, prompt_end: str) -> bool:
        return self._opened(prompt_end)

    def stream(self, *, opened: bool) -> TextStream:
        return GuardedStream(self._stream(opened=opened), self._guard)


class GuardedToolCalls(ToolCallParser):
    def __init__(self, parser: ToolCallParser, guard: ParserGuard) -> None:
        self.keeps_special_tokens = parser.keeps_special_tokens
        self._guard = guard
        self._stream = guard.watched("stream", parser.stream)
        self._grammar = guard.watched("grammar", parser.grammar)

    def stream(self, tools: Sequence[Tool]) -> TextStream:
        return GuardedStream(self._stream(tools), self._guard)

    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        return self._grammar(tools, required=required, parallel=parallel)
