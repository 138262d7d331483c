"""The text of one choice to events: the reasoning first, then calls, in what is left.

The same reader over the same text serves answers that are streamed and those that are not, so that both say the same. Knows
the parsers' pieces (`hookspecs.parser`), no format and no token.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Sequence

from jackfield.hookspecs.chat import (
    CallBegan,
    CallDelta,
    ChatEvent,
    ChoiceEnded,
    ContentDelta,
    EndReason,
    ReasoningDelta,
)
from jackfield.hookspecs.parser import CallArguments, CallBegin, Content, Piece, Reasoning, TextStream


def call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class ChoiceReader:
    """index              the choice's number, in its events
    reasoning          None: there is none to be found
    calls              None: no call is read
    separate           False: the reasoning stays in the content, as the model wrote it
    stream_reasoning   False: the reasoning is told once it is over
    parallel           False: what the model writes from a second call on is not told
    """

    def __init__(
        self,
        index: int,
        *,
        reasoning: TextStream | None = None,
        calls: TextStream | None = None,
        separate: bool = True,
        stream_reasoning: bool = True,
        parallel: bool = True,
        new_id: Callable[[], str] = call_id,
    ) -> None:
        self._index = index
        self._reasoning = reasoning
        self._calls = calls
        self._separate = separate
        self._stream_reasoning = stream_reasoning
        self._parallel = parallel
        self._new_id = new_id
        self._kept: list[str] = []
        self._call = -1
        self._arguments: list[str] = []
        self._silent = False
        self.reasoned = False
        """Whether any reasoning has come."""

    def feed(self, text: str) -> list[ChatEvent]:
        if self._reasoning is None and self._calls is None:
            return [ContentDelta(index=self._index, text=text)] if text else []
        if not text:
            return []
        return self._events(self._after_reasoning(self._reasoned_pieces(text)))

    def finish(self, reason: EndReason, matched: int | str | None = None) -> list[ChatEvent]:
        """The last events; "stop" becomes "tool_calls" if the choice holds a call, unless a stop text or pattern of the request
        cut the last one in its arguments: a client would act on half a call."""
        pieces: list[Piece] = []
        if self._reasoning is not None:
            held = self._reasoning.finish()
            self._note(held)
            pieces += self._after_reasoning(held if self._separate else ())
        if self._calls is not None:
            pieces += self._calls.finish()
        events = self._events(pieces)
        events += self._told_reasoning()
        if reason == "stop" and self._call >= 0 and not (isinstance(matched, str) and self._is_cut()):
            reason = "tool_calls"
        events.append(ChoiceEnded(index=self._index, reason=reason, matched=matched))
        return events

    def _is_cut(self) -> bool:
        """Whether the last call's arguments are no complete JSON."""
        try:
            json.loads("".join(self._arguments))
        except (ValueError, RecursionError):
            return True
        return False

    def _reasoned_pieces(self, text: str) -> Sequence[Piece]:
        if self._reasoning is None:
            return (Content(text=text),)
        pieces = self._reasoning.feed(text)
        self._note(pieces)
        return pieces if self._separate else (Content(text=text),)

    def _note(self, pieces: Iterable[Piece]) -> None:
        self.reasoned = self.reasoned or any(isinstance(piece, Reasoning) for piece in pieces)

    def _after_reasoning(self, pieces: Iterable[Piece]) -> list[Piece]:
        found: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Content) and self._calls is not None:
                found += self._calls.feed(piece.text)
            else:
                found.append(piece)
        return found

    def _events(self, pieces: Iterable[Piece]) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        for piece in pieces:
            if self._silent:
                break
            match piece:
                case Reasoning(text=text):
                    if self._stream_reasoning:
                        events.append(ReasoningDelta(index=self._index, text=text))
                    else:
                        self._kept.append(text)
                    continue
            events += self._told_reasoning()
            match piece:
                case Content(text=text):
                    events.append(ContentDelta(index=self._index, text=text))
                case CallBegin(name=name, id=given):
                    if self._call >= 0 and not self._parallel:
                        self._silent = True
                        break
                    self._call += 1
                    self._arguments.clear()
                    events.append(CallBegan(index=self._index, call=self._call, id=given or self._new_id(), name=name))
                case CallArguments(text=text):
                    self._arguments.append(text)
                    events.append(CallDelta(index=self._index, call=self._call, arguments=text))
        return merged(events)

    def _told_reasoning(self) -> list[ChatEvent]:
        if not self._kept:
            return []
        text = "".join(self._kept)
        self._kept.clear()
        return [ReasoningDelta(index=self._index, text=text)]


def merged(events: list[ChatEvent]) -> list[ChatEvent]:
    """Texts of one sort that follow each other as one event."""
    if len(events) < 2:
        return events
    found: list[ChatEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, ContentDelta) and isinstance(last, ContentDelta):
            found[-1] = ContentDelta(index=event.index, text=last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            found[-1] = ReasoningDelta(index=event.index, text=last.text + event.text)
        elif isinstance(event, CallDelta) and isinstance(last, CallDelta) and event.call == last.call:
            found[-1] = CallDelta(index=event.index, call=event.call, arguments=last.arguments + event.arguments)
        else:
            found.append(event)
    return found
