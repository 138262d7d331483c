"""Tools and reasoning over HTTP, with texts that the worker is told to write: streamed and not, they are the same (B31 B32 B34
B35), chunks are whole (B12), tokens add up (B24), and OpenAI's client rebuilds every call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from jackfield.entrypoints.http.schemas.openai_chat import ChatChunk, ChatCompletion
from tests.e2e.http.servers import DEADLINE, SIMULATED, Server, events, script, serving

CHAT = "/v1/chat/completions"
CALL_F = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
CALL_G = '<tool_call>\n{"name": "g", "arguments": {"city": "Zürich 😀", "n": [1, {"a": "}"}]}}\n</tool_call>'
TEXTS = {
    "plain": "Just words, 1 < 2, and no call.",
    "one": CALL_G,
    "three": f"Let me see.\n{CALL_F}\n{CALL_G}\n{CALL_F}",
    "thought": f"<think>\nHmm, 😀 so.\n</think>\n\nIt is {CALL_G}",
    "open thought": "<think>\nOn and on",
    "unknown": CALL_F.replace('"f"', '"other"'),
    "plain list": '[{"name": "f", "arguments": {"a": 1}}]',
}
HELLO = [{"role": "user", "content": "hello"}]


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


TOOLS = [function("f"), function("g")]


@dataclass
class Forced:
    """The worker answers TEXTS in turn; short requests are sent until it is the wanted one's."""

    server: Server
    sent: int = 0

    def next_is(self, name: str) -> None:
        while list(TEXTS)[self.sent % len(TEXTS)] != name:
            self.server.generate(input_ids=[5], sampling_params={"max_new_tokens": 1})
            self.sent += 1

    def post(self, name: str, count: int = 1, **body: Any) -> httpx.Response:
        self.next_is(name)
        answer = self.server.post(CHAT, {"messages": HELLO, "temperature": 0, **body})
        assert answer.status_code == 200, answer.text
        self.sent += count
        return answer

    def both(self, name: str, **body: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        """The choice, what the chunks of the same answer join to, and the chunks."""
        whole = self.post(name, **body).json()
        ChatCompletion.model_validate(whole)
        chunks = events(self.post(name, stream=True, stream_options={"include_usage": True}, **body))
        for chunk in chunks:
            ChatChunk.model_validate(chunk)
        assert chunks[-1]["usage"]["completion_tokens_details"] == whole["usage"]["completion_tokens_details"]
        assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        return whole, rebuilt(chunks), chunks


def rebuilt(chunks: list[Any]) -> dict[str, Any]:
    """As a client joins deltas, strictly."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    finish = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert finish is None, "something came after the finish reason"
            finish = choice["finish_reason"]
            delta = choice["delta"]
            message["content"] += delta.get("content", "")
            message["reasoning_content"] += delta.get("reasoning_content", "")
            for part in delta.get("tool_calls", ()):
                if part["index"] == len(message["tool_calls"]):
                    assert part["id"].startswith("call_")
                    assert part["type"] == "function"
                    message["tool_calls"].append([part["function"]["name"], ""])
                else:
                    assert part["index"] == len(message["tool_calls"]) - 1
                    assert set(part) == {"index", "function"}
                    assert set(part["function"]) == {"arguments"}
                message["tool_calls"][-1][1] += part["function"]["arguments"]
    return {**message, "finish_reason": finish}


def flat(whole: Any) -> dict[str, Any]:
    """A choice in the shape of `rebuilt`."""
    (choice,) = whole["choices"]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    return {
        "content": message["content"] or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "tool_calls": [[call["function"]["name"], call["function"]["arguments"]] for call in calls],
        "finish_reason": choice["finish_reason"],
    }


@pytest.fixture(scope="module")
def forced() -> Iterator[Forced]:
    flags = (
        "--tool-call-parser",
        "hermes",
        "--reasoning-parser",
        "think",
        "--max-total-tokens",
        "20000",
        "--served-model-name",
        "a:b",
    )
    with serving(*SIMULATED, *script(*TEXTS.values()), *flags) as up:
        yield Forced(up)


G = json.loads(CALL_G.splitlines()[1])["arguments"]


@pytest.mark.parametrize(
    ("name", "calls", "content", "reasoning"),
    [
        ("plain", [], TEXTS["plain"], ""),
        ("one", [("g", G)], "", ""),
        ("three", [("f", {}), ("g", G), ("f", {})], "Let me see.", ""),
        ("thought", [("g", G)], "It is", "Hmm, 😀 so."),
        ("unknown", [], TEXTS["unknown"], ""),
    ],
)
def test_b31_b32_b35_streams_say_what_answers_say(
    forced: Forced, name: str, calls: Any, content: str, reasoning: str
) -> None:
    whole, streamed, chunks = forced.both(name, tools=TOOLS)
    found = flat(whole)
    assert found == streamed
    assert [(call, json.loads(text)) for call, text in found["tool_calls"]] == calls
    assert found["content"].strip() == content
    assert found["reasoning_content"].strip() == reasoning
    assert found["finish_reason"] == ("tool_calls" if calls else "stop")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    middle = [choice["delta"] for chunk in chunks[1:] for choice in chunk["choices"] if choice["finish_reason"] is None]
    assert all(delta and all(value not in (None, "") for value in delta.values()) for delta in middle)
    message = whole["choices"][0]["message"]
    assert ("tool_calls" in message) is bool(calls)
    assert (message["content"] is None) is (bool(calls) and not found["content"])
    used = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert (used > 0) is bool(reasoning)
    assert used < whole["usage"]["completion_tokens"]


def test_b31_none_shows_no_tools_and_reads_no_call(forced: Forced) -> None:
    whole, streamed, _ = forced.both("one", tools=TOOLS, tool_choice="none")
    assert flat(whole) == streamed
    assert flat(whole)["content"] == CALL_G
    assert flat(whole)["finish_reason"] == "stop"
    without = forced.post("one").json()["usage"]["prompt_tokens"]
    assert whole["usage"]["prompt_tokens"] == without
    assert forced.post("one", tools=TOOLS).json()["usage"]["prompt_tokens"] > without


@pytest.mark.parametrize("limit", range(1, 40, 3))
def test_b34_a_cut_call_keeps_what_was_produced(forced: Forced, limit: int) -> None:
    whole, streamed, _ = forced.both("one", tools=TOOLS, max_tokens=limit)
    found = flat(whole)
    assert found == streamed
    assert found["finish_reason"] == "length"
    arguments = CALL_G[CALL_G.index('{"city') : CALL_G.rindex("}")]
    produced = "".join(text for _, text in found["tool_calls"])
    assert arguments.startswith(produced)
    assert bool(found["tool_calls"]) is not bool(found["content"])
    assert CALL_G.startswith(found["content"])


def test_b35_reasoning_that_is_never_closed_is_no_content(forced: Forced) -> None:
    whole, streamed, _ = forced.both("open thought")
    assert flat(whole) == streamed
    assert flat(whole)["content"] == ""
    assert flat(whole)["reasoning_content"].strip() == "On and on"
    usage = whole["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == usage["completion_tokens"]


def test_reasoning_may_stay_in_the_content_or_come_in_one_piece(forced: Forced) -> None:
    whole, streamed, _ = forced.both("thought", separate_reasoning=False)
    assert flat(whole) == streamed
    assert flat(whole)["content"] == TEXTS["thought"]
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    whole, streamed, chunks = forced.both("thought", stream_reasoning=False)
    assert flat(whole) == streamed
    told = [chunk for chunk in chunks for choice in chunk["choices"] if "reasoning_content" in choice["delta"]]
    assert len(told) == 1


def test_without_parallel_calls_there_is_one(forced: Forced) -> None:
    whole, streamed, _ = forced.both("three", tools=TOOLS, parallel_tool_calls=False)
    assert flat(whole) == streamed
    assert [name for name, _ in flat(whole)["tool_calls"]] == ["f"]


def test_b24_each_token_has_one_entry_wherever_its_text_went(forced: Forced) -> None:
    asked = {"tools": TOOLS, "logprobs": True, "top_logprobs": 2}
    whole, streamed, chunks = forced.both("thought", **asked)
    assert flat(whole) == streamed
    entries = whole["choices"][0]["logprobs"]["content"]
    assert len(entries) == whole["usage"]["completion_tokens"]
    told = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["logprobs"] is not None
        for entry in choice["logprobs"]["content"]
    ]
    assert told == entries
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert b"".join(bytes(entry["bytes"]) for entry in entries[:-1]).decode() == TEXTS["thought"]


def test_several_choices_each_have_their_calls(forced: Forced) -> None:
    whole = forced.post("one", count=2, n=2, tools=TOOLS).json()
    assert [len(choice["message"].get("tool_calls") or ()) for choice in whole["choices"]] == [1, 3]
    chunks = events(forced.post("one", count=2, n=2, tools=TOOLS, stream=True))
    for index, choice in enumerate(whole["choices"]):
        own = [{"choices": [one for one in chunk["choices"] if one["index"] == index]} for chunk in chunks]
        assert rebuilt(own) == flat({"choices": [choice]})


def test_usage_so_far_may_be_in_every_chunk(forced: Forced) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(forced.post("thought", tools=TOOLS, stream=True, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert 0 < counts[0] < 5
    assert counts[-1] == counts[-2] > 10
    reasoning = [chunk["usage"]["completion_tokens_details"]["reasoning_tokens"] for chunk in chunks]
    assert reasoning == sorted(reasoning)


def test_openais_own_client_rebuilds_the_calls(forced: Forced) -> None:
    expected = flat(forced.post("three", tools=TOOLS).json())
    forced.next_is("three")
    messages: Any = HELLO
    tools: Any = TOOLS
    with (
        openai.OpenAI(base_url=f"{forced.server.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE) as client,
        client.chat.completions.stream(model="a:b", messages=messages, tools=tools, temperature=0) as stream,
    ):
        message = stream.get_final_completion().choices[0].message
    forced.sent += 1
    assert message.content == expected["content"]
    found = [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    assert found == expected["tool_calls"]
    assert len({call.id for call in message.tool_calls or ()}) == 3


def test_b18_a_second_turn_takes_the_calls_of_the_first(forced: Forced) -> None:
    for arguments in ("{}", "", '{"a":1}', None):
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        history = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}]
        history.append({"role": "tool", "tool_call_id": "c1", "content": "3 <|im_end|>"})
        assert forced.post("plain", messages=history, tools=TOOLS).json()["choices"][0]["finish_reason"] == "stop"
    for arguments in ("[]", "{", "5"):
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        answer = forced.server.post(CHAT, {"messages": [*HELLO, {"role": "assistant", "tool_calls": [call]}]})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


def test_texts_are_parsed_without_generating(forced: Forced) -> None:
    info = forced.server.get("/model_info").json()
    assert (info["tool_call_parser"], info["reasoning_parser"]) == ("hermes", "think")
    assert info["tool_call_parser_reason"] == "named by --tool-call-parser"
    body = {"text": TEXTS["three"], "tools": TOOLS}
    for named in ({}, {"tool_call_parser": "hermes"}):
        answer = forced.server.post("/parse_function_call", {**body, **named})
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["normal_text"] == "Let me see.\n"
        assert [(call["tool_index"], call["name"]) for call in told["calls"]] == [(0, "f"), (1, "g"), (2, "f")]
        assert json.loads(told["calls"][1]["parameters"]) == G
    for text, more, expected in (
        ("<think>\nHm\n</think>\nYes", {}, ("Hm\n", "Yes")),
        ("Hm</think>Yes", {"opened": True}, ("Hm", "Yes")),
        ("Hm", {"opened": False, "reasoning_parser": "think"}, ("", "Hm")),
    ):
        told = forced.server.post("/separate_reasoning", {"text": text, **more}).json()
        assert (told["reasoning_text"], told["text"]) == expected


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/parse_function_call", {"text": "x", "tools": TOOLS, "tool_call_parser": "mistral"}, "tool_call_parser"),
        ("/parse_function_call", {"text": "x", "tools": [{"type": "function"}]}, "tools[0].function"),
        ("/parse_function_call", {"text": "x" * (2**20 + 1), "tools": TOOLS}, "text"),
        ("/separate_reasoning", {"text": "x", "reasoning_parser": "deepseek-r1"}, "reasoning_parser"),
        ("/separate_reasoning", {"text": 3}, "text"),
    ],
)
def test_what_cannot_be_parsed_is_refused(forced: Forced, path: str, body: dict[str, Any], param: str) -> None:
    answer = forced.server.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_b21_a_served_name_with_a_colon_is_one_name(forced: Forced) -> None:
    assert forced.post("plain", model="a:b", max_tokens=1).json()["model"] == "a:b"
    for name in ("a", "b", "a:zz", "a:b:c"):
        answer = forced.server.post(CHAT, {"messages": HELLO, "model": name})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
