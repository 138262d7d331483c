"""The text of a choice to events, at every split of the text: B31 B32 B34 B35."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from jackfield.hookspecs.chat import (
    CallBegan,
    CallDelta,
    ChatChoice,
    ChatEvent,
    ChoiceEnded,
    ContentDelta,
    EndReason,
    ReasoningDelta,
    ToolCall,
)
from jackfield.hookspecs.parser import Tool
from jackfield.managers.chat.choice_reader import ChoiceReader
from jackfield.managers.chat.choices import joined
from tests.unit.chat.fakes import Calling, Thinking

TOOLS = (Tool(name="f"), Tool(name="gg"))


def reader(*, reasoning: bool = True, calls: bool = True, opened: bool = False, **options: bool) -> ChoiceReader:
    numbers = count()
    return ChoiceReader(
        3,
        reasoning=Thinking(opened) if reasoning else None,
        calls=Calling(TOOLS) if calls else None,
        new_id=lambda: f"id{next(numbers)}",
        **options,
    )


def events(chunks: Sequence[str], reason: EndReason = "stop", **options: bool) -> list[ChatEvent]:
    one = reader(**options)
    return [event for chunk in chunks for event in one.feed(chunk)] + one.finish(reason)


def whole(text: str, reason: EndReason = "stop", **options: bool) -> ChatChoice:
    return joined(3, events([text], reason, **options))


def choice(
    content: str = "", reasoning: str = "", calls: Sequence[tuple[str, str]] = (), reason: EndReason = "stop"
) -> ChatChoice:
    made = tuple(ToolCall(id=f"id{i}", name=name, arguments=text) for i, (name, text) in enumerate(calls))
    return ChatChoice(
        index=3,
        content=content,
        reasoning=reasoning,
        tool_calls=made,
        reason=reason,
        matched=None,
        logprobs=None,
    )


CASES = [
    ("", choice()),
    ("plain", choice("plain")),
    ("[think]a[/think]b", choice("b", "a")),
    ("[think]never closed", choice("", "never closed")),
    ("[thi", choice("[thi")),
    ("[think]a[/thin", choice("", "a[/thin")),
    ("say [think]x", choice("say [think]x")),
    ('<f{"a": {}}>', choice(calls=[("f", '{"a": {}}')], reason="tool_calls")),
    ('x<f{}><gg{"b":1}><f{}>y', choice("xy", calls=[("f", "{}"), ("gg", '{"b":1}'), ("f", "{}")], reason="tool_calls")),
    ("[think]<f{}>[/think]<gg{}>", choice("", "<f{}>", [("gg", "{}")], "tool_calls")),
    ("<unknown{}>", choice("<unknown{}>")),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_b32_b35_every_split_gives_the_same(text: str, expected: ChatChoice) -> None:
    assert whole(text) == expected
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert joined(3, events([text[:first], text[first:second], text[second:]])) == expected
    assert joined(3, events(list(text))) == expected


@pytest.mark.parametrize("cut", range(len('[think]a[/think]<gg{"b": "c"}>')))
def test_b34_what_was_produced_stays_and_nothing_is_invented(cut: int) -> None:
    text = '[think]a[/think]<gg{"b": "c"}>'[:cut]
    found = whole(text, "length")
    assert found.reason == "length"
    assert joined(3, events(list(text), "length")) == found
    assert all('{"b": "c"}'.startswith(call.arguments) for call in found.tool_calls)
    produced = found.reasoning + found.content + "".join(call.arguments for call in found.tool_calls)
    assert all(character in text for character in produced)


@pytest.mark.parametrize(
    ("text", "matched", "reason"),
    [
        ('<f{}><gg{"b": "', "c", "stop"),
        ('<gg{"b": ' + '{"b": ' * 40000, "c", "stop"),
        ('<f{}><gg{"b": "c"}', ">", "tool_calls"),
        ("<f{}>and", "more", "tool_calls"),
        ('<gg{"b": "', 2, "tool_calls"),
    ],
)
def test_b31_a_stop_text_inside_a_call_is_no_complete_call(text: str, matched: int | str, reason: EndReason) -> None:
    one = reader()
    one.feed(text)
    assert one.finish("stop", matched)[-1] == ChoiceEnded(index=3, reason=reason, matched=matched)


def test_an_opened_reasoning_needs_no_mark() -> None:
    assert whole("a[/think]b", opened=True) == choice("b", "a")


def test_reasoning_that_is_not_separated_stays_as_it_was_written() -> None:
    text = "[think]a[/think]b<f{}>"
    assert whole(text, separate=False) == choice("[think]a[/think]b", calls=[("f", "{}")], reason="tool_calls")
    one = reader(separate=False)
    one.feed(text)
    assert one.reasoned


def test_reasoning_may_come_in_one_piece() -> None:
    found = events(list("[think]abc[/think]d"), stream_reasoning=False)
    assert found == [
        ReasoningDelta(index=3, text="abc"),
        ContentDelta(index=3, text="d"),
        ChoiceEnded(index=3, reason="stop"),
    ]
    assert events(list("[think]abc"), "length", stream_reasoning=False) == [
        ReasoningDelta(index=3, text="abc"),
        ChoiceEnded(index=3, reason="length"),
    ]


def test_b31_none_never_parses_and_no_call_is_no_tool_calls() -> None:
    assert whole("<f{}>", calls=False) == choice("<f{}>")
    assert whole("just text").reason == "stop"
    assert whole("<f{}>", "abort").reason == "abort"


def test_without_parallel_calls_what_follows_the_first_is_not_told() -> None:
    assert whole("a<f{}>b<gg{}>c", parallel=False) == choice("ab", calls=[("f", "{}")], reason="tool_calls")


def test_calls_are_numbered_and_named_once() -> None:
    found = events(list("<f{}><gg{ }>"))
    assert [event for event in found if isinstance(event, CallBegan)] == [
        CallBegan(index=3, call=0, id="id0", name="f"),
        CallBegan(index=3, call=1, id="id1", name="gg"),
    ]
    assert "".join(event.arguments for event in found if isinstance(event, CallDelta) and event.call == 1) == "{ }"


def test_texts_that_came_together_are_one_event() -> None:
    assert events(["ab[/think]cd"], opened=True) == [
        ReasoningDelta(index=3, text="ab"),
        ContentDelta(index=3, text="cd"),
        ChoiceEnded(index=3, reason="stop"),
    ]


def test_events_without_an_end_are_no_choice() -> None:
    with pytest.raises(ValueError, match="not ended"):
        joined(0, [ContentDelta(index=0, text="a")])
    with pytest.raises(ValueError, match="before a call"):
        joined(0, [CallDelta(index=0, call=0, arguments="a"), ChoiceEnded(index=0, reason="stop")])
