"""OpenAI's responses without a server: items to messages, events to items, and the store's bounds."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.responses.input_items import (
    chat_choice,
    chat_format,
    chat_tools,
    input_messages,
    messages_of,
)
from jackfield.entrypoints.http.responses.output_items import ResponseOutput
from jackfield.entrypoints.http.responses.store import ResponseStore, Stored
from jackfield.hookspecs import (
    CallBegan,
    CallDelta,
    ChatEvent,
    ChoiceEnded,
    ContentDelta,
    ReasoningDelta,
    TokenEntry,
    TokensScored,
)

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
AS_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_items_become_messages() -> None:
    items = [
        {"role": "developer", "content": "D"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "A"}, {"type": "refusal", "refusal": "no"}]},
        CALL,
        {**CALL, "call_id": "d"},
        {"type": "function_call_output", "call_id": "c", "output": "3"},
        CALL,
    ]
    assert input_messages(items, 8) == [
        {"role": "developer", "content": "D"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "no"}],
            "reasoning_content": "so",
            "tool_calls": [AS_CALL, {**AS_CALL, "id": "d"}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "assistant", "content": None, "tool_calls": [AS_CALL]},
    ]
    assert input_messages("hello", 1) == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (5, "input"),
        ([], "input"),
        ([{}] * 9, "input"),
        ([5], "input[0]"),
        ([{"type": "item_reference", "id": "x"}], "input[0].type"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([{"role": "user", "content": 5}], "input[0].content"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        ([{**CALL, "arguments": {}}], "input[0].arguments"),
        ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
        ([{"type": "reasoning", "content": "x"}], "input[0].content"),
        ([{"type": "reasoning", "content": [{}]}], "input[0].content"),
    ],
)  # fmt: skip
def test_b86_what_is_no_text_is_refused_with_its_place(given: Any, param: str) -> None:
    with pytest.raises(ApiError) as refusal:
        input_messages(given, 8)
    assert refusal.value.param == param


def test_tools_choices_and_formats_get_the_shape_of_chats() -> None:
    flat: dict[str, Any] = {"type": "function", "name": "f", "parameters": {}, "strict": None}
    nested = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert chat_tools([flat, nested, {"type": "web_search"}]) == [nested, nested, {"type": "web_search"}]
    assert chat_tools(None) == []
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [flat]}
    assert chat_choice(allowed) == {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [flat]}}
    assert chat_choice("auto") == "auto"
    described = {"type": "json_schema", "name": "n", "schema": {}, "strict": True}
    assert chat_format(described) == {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}
    assert chat_format({"type": "text"}) == {"type": "text"}


def entry(text: str) -> TokenEntry:
    return TokenEntry(token=text, logprob=-1.0, data=text.encode())


EVENTS: list[ChatEvent] = [
    ReasoningDelta(index=0, text="h"),
    ReasoningDelta(index=0, text="m"),
    TokensScored(index=0, entries=(entry("a"), entry("b"))),
    ContentDelta(index=0, text="ab"),
    CallBegan(index=0, call=0, id="call_1", name="f"),
    CallDelta(index=0, call=0, arguments='{"x"'),
    CallDelta(index=0, call=0, arguments=": 1}"),
    CallBegan(index=0, call=1, id="call_2", name="g"),
    TokensScored(index=0, entries=(entry("c"),)),
    ContentDelta(index=0, text="end"),
    ChoiceEnded(index=0, reason="tool_calls"),
]


def test_events_become_items_in_order() -> None:
    output = ResponseOutput()
    told = [event for one in EVENTS for event in output.take([one])]
    assert [item["type"] for item in output.items] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
        "message",
    ]
    assert {item["status"] for item in output.items} == {"completed"}
    assert output.items[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert output.items[1]["content"][0]["text"] == "ab"
    assert [score["token"] for score in output.items[1]["content"][0]["logprobs"]] == ["a", "b", "c"]
    assert output.items[4]["content"][0]["logprobs"] == []
    assert [(item["name"], item["arguments"]) for item in output.items[2:4]] == [("f", '{"x": 1}'), ("g", "")]
    kinds = [event["type"].removeprefix("response.") for event in told]
    text = ["output_item.added", "content_part.added", "{}.delta", "{}.done", "content_part.done", "output_item.done"]
    reasoning = [kind.format("reasoning_text") for kind in text]
    call = "function_call_arguments"
    assert kinds == [
        *reasoning[:3],
        reasoning[2],
        *reasoning[3:],
        *[kind.format("output_text") for kind in text],
        *["output_item.added", f"{call}.delta", f"{call}.delta", f"{call}.done", "output_item.done"],
        *["output_item.added", f"{call}.done", "output_item.done"],
        *[kind.format("output_text") for kind in text],
    ]
    added = [event["item"] for event in told if event["type"].endswith("output_item.added")]
    assert all(item["status"] == "in_progress" for item in added)
    assert all(not (item.get("content") or item.get("arguments")) for item in added)
    done = [event["item"] for event in told if event["type"].endswith("output_item.done")]
    assert [{**item, "content": 0} for item in done] == [{**item, "content": 0} for item in output.items]
    assert [event["output_index"] for event in told] == sorted(event["output_index"] for event in told)


def test_a_cut_item_is_incomplete_and_goes_back_as_it_is() -> None:
    output = ResponseOutput()
    list(output.take([*EVENTS[:6], ChoiceEnded(index=0, reason="length")]))
    assert [item["status"] for item in output.items] == ["completed", "completed", "incomplete"]
    (message,) = messages_of((item, "output") for item in output.items)
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x"'}
    assert message["reasoning_content"] == "hm"


def stored(name: str, owner: bytes = b"a", *, size: int = 0, busy: bool = False) -> Stored:
    response = {"id": name, "output": "x" * size}
    return Stored(owner=owner, response=response, messages=[], busy=busy)


def test_the_store_keeps_its_bounds_and_forgets_the_longest_unused() -> None:
    store = ResponseStore(3, 1000)
    for name in "abc":
        assert store.put(stored(name))
    assert store.get("a", b"a") is not None
    assert store.put(stored("d"))
    assert [name for name in "abcd" if store.get(name, b"a")] == ["a", "c", "d"]
    assert store.put(stored("e", size=900))
    assert [name for name in "acde" if store.get(name, b"a")] == ["c", "d", "e"]
    before = store.nbytes
    assert before <= 1000
    assert not store.put(stored("f", size=1000))
    assert store.put(stored("e", size=10))
    assert store.nbytes < before
    for name in "cd":
        assert store.delete(name, b"a") is not None
    assert store.delete("e", b"a") is not None
    assert (len(store), store.nbytes) == (0, 0)


def test_what_one_key_stored_another_cannot_find_or_delete() -> None:
    store = ResponseStore(3, 1000)
    store.put(stored("a"))
    assert store.get("a", b"b") is None
    assert store.delete("a", b"b") is None
    assert store.get("a", b"a") is not None


def test_what_is_being_written_is_not_forgotten() -> None:
    store = ResponseStore(2, 1000)
    assert store.put(stored("a", busy=True))
    assert store.put(stored("b"))
    assert store.put(stored("c"))
    assert store.get("a", b"a") is not None
    assert store.put(stored("d", busy=True))
    assert not store.put(stored("e"))
    assert len(store) == 2
