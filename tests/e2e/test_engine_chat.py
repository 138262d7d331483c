"""`Engine.chat`: whole answers, events and coroutines say the same; the calls of a first turn go into the second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from jackfield.entrypoints.engine import Engine
from jackfield.hookspecs import CallDelta, ChoiceEnded, ContentDelta, ReasoningDelta
from jackfield.managers.chat.choices import joined
from jackfield.managers.errors import RequestError

TEXT = '<think>Hm.</think>It is\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    options = {"worker.simulated": {"script": TEXT}}
    with Engine(
        worker="simulated",
        options=options,
        max_total_tokens=4000,
        tool_call_parser="hermes",
        reasoning_parser="think",
        check_invariants="step",
    ) as made:
        yield made


def told(answer: Any) -> list[Any]:
    return [
        (choice.content, choice.reasoning, [(call.name, call.arguments) for call in choice.tool_calls], choice.reason)
        for choice in answer.choices
    ]


def test_events_join_to_the_answer(engine: Engine) -> None:
    whole = engine.chat(HELLO, {"n": 2}, tools=TOOLS, logprobs=1)
    assert told(whole)[0] == told(whole)[1] == ("It is\n", "Hm.", [("f", '{"a": "é"}')], "tool_calls")
    assert whole.text == "It is\n"
    assert all(len(choice.logprobs) == whole.usage.completion_tokens // 2 for choice in whole.choices)
    with engine.chat(HELLO, {"n": 2}, tools=TOOLS, logprobs=1, stream=True) as stream:
        events = list(stream)
        assert stream.usage().completion_tokens == whole.usage.completion_tokens
        assert stream.usage().reasoning_tokens == whole.usage.reasoning_tokens > 0
    assert {type(event) for event in events} >= {ContentDelta, ReasoningDelta, CallDelta, ChoiceEnded}
    for index, choice in enumerate(whole.choices):
        again = joined(index, [event for event in events if event.index == index], scored=True)
        assert (again.content, again.reasoning, again.logprobs) == (choice.content, choice.reasoning, choice.logprobs)


def test_coroutines_say_the_same(engine: Engine) -> None:
    async def both() -> tuple[Any, list[Any]]:
        whole = await engine.async_chat(HELLO, tools=TOOLS)
        return whole, [event async for event in await engine.async_chat(HELLO, tools=TOOLS, stream=True)]

    whole, events = asyncio.run(both())
    assert joined(0, events).content == whole.text == "It is\n"


def test_a_stream_that_is_left_ends_its_request(engine: Engine) -> None:
    with engine.chat(HELLO, {"ignore_eos": True, "max_new_tokens": 1000}, stream=True) as stream:
        next(stream)
    assert engine.get_server_info()["scheduler"]["running"] == 0


def test_refusals_name_the_field(engine: Engine) -> None:
    for fields, param in (
        ({"tools": [{}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
    ):
        with pytest.raises(RequestError) as refusal:
            engine.chat(HELLO, **fields)
        assert refusal.value.param == param
    with pytest.raises(TypeError):
        engine.chat(HELLO, no_such_field=1)
