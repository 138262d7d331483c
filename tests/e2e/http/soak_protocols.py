"""What the soak test sends to the routes of chats: tools, formats, reasoning, and the protocols of others, each with what must
hold for its answer; and what each route refuses. Drawn from the dice that it is given; knows no server."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.e2e.http.soak_mix import maybe, text

MODEL = "soak"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
OLLAMA = ("/api/chat", "/api/generate")

PARAMETERS = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
NAMES = ("f", "g")
FUNCTIONS: list[dict[str, Any]] = [{"name": name, "parameters": PARAMETERS} for name in NAMES]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
SCHEMA = {**PARAMETERS, "properties": {"n": {"enum": ["é", 4, None]}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"n": 5}}\n</tool_call>'
WRITTEN = [
    "Hello. ",
    "😀👩‍👧中",
    "<thi",
    "<think>\nSo 1 < 2\n</think>\n\n",
    CALL,
    "<tool_call>",
    '{"a": [1]}',
    "\n\n",
    "</think>",
]

HELLO = [{"role": "user", "content": "x"}]
BAD: list[tuple[str, Any]] = [
    (
        CHAT,
        {
            "messages": HELLO,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strng"}}},
        },
    ),
    (
        CHAT,
        {
            "messages": HELLO,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}},
        },
    ),
    (CHAT, {"messages": HELLO, "regex": "((("}),
    (CHAT, {"messages": HELLO, "ebnf": "root ::= nowhere"}),
    (CHAT, {"messages": HELLO, "regex": "a", "ebnf": 'root ::= "a"'}),
    (CHAT, {"messages": HELLO, "tool_choice": "required"}),
    (CHAT, {"messages": HELLO, "tools": [{"type": "function"}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]}),
    (CHAT, {"messages": HELLO, "chat_template": "{{ 1 }}"}),
    ("/v1/completions", {"prompt": "x", "best_of": 2, "stream": True}),
    ("/generate", {"text": "x", "sampling_params": {"regex": "a{1000000}"}}),
    (RESPONSES, {"input": []}),
    (RESPONSES, {"input": "x", "previous_response_id": "resp_nobody"}),
    (RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": 5}}}}),
    (MESSAGES, {"model": MODEL, "messages": [], "max_tokens": 5}),
    (MESSAGES, {"model": MODEL, "messages": HELLO, "max_tokens": 0}),
    (MESSAGES, {"model": "nobody", "messages": HELLO, "max_tokens": 5}),
    ("/v1/messages/count_tokens", {"model": MODEL, "messages": 5}),
    ("/api/chat", {"model": "nobody", "messages": HELLO}),
    ("/api/chat", {"model": MODEL, "messages": 5}),
    ("/api/generate", {"model": MODEL, "prompt": "x", "format": "no format"}),
    ("/api/show", {}),
    ("/v1/embeddings", {"input": "x"}),
    ("/encode", {"text": "x"}),
    ("/classify", {"text": "x"}),
    ("/v1/rerank", {"query": "x", "documents": ["y"]}),
    ("/v1/score", {"query": "x", "items": ["y"], "label_token_ids": [-1]}),
    ("/tokenize", {}),
    ("/detokenize", {"tokens": [-1]}),
    ("/parse_function_call", {"text": "x", "tools": 5}),
    ("/separate_reasoning", {"text": 5}),
    ("/open_session", {"max_tokens": -1}),
    ("/close_session", {}),
    ("/abort_request", {}),
    ("/schedule_policy", {"name": "nobody"}),
]
"""At least one for every route with a body."""


def forced(written: str) -> dict[str, str]:
    return {"regex": "".join(f"\\{char}" if char in "\\.^$*+?{}[]|()/-" else char for char in written)}


def chat(dice: random.Random) -> dict[str, Any]:
    """With tools, formats and reasoning, in every combination that is not refused."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text(dice)}],
        "max_tokens": dice.choice([1, 7, 30, 90]),
        **maybe(dice, 0.3, temperature=0),
        **maybe(dice, 0.3, n=2),
        **maybe(dice, 0.3, logprobs=True),
        **maybe(dice, 0.3, stop=dice.choice(["</think>", ["1", '"']])),
        **maybe(dice, 0.2, separate_reasoning=False),
        **maybe(dice, 0.2, stream_reasoning=False),
        **maybe(dice, 0.5, tools=TOOLS, parallel_tool_calls=dice.random() < 0.5),
        **maybe(dice, 0.3, priority=dice.choice([-20, 0, 40])),
    }
    if "tools" in body and dice.random() < 0.5:
        return {**body, "tool_choice": dice.choice(["required", {"type": "function", "function": {"name": "g"}}])}
    formats: list[dict[str, Any]] = [forced("".join(dice.choices(WRITTEN, k=dice.choice([1, 3, 5]))))] * 3
    formats += [{"ebnf": 'root ::= "a" | "b" root'}, {"regex": f"[a-z]{{{dice.randrange(1, 40)}}}"}]
    if "tools" not in body:
        form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
        formats += [{"response_format": form}] * 2 + [{"response_format": {"type": "json_object"}}]
    return {**body, **dice.choice(formats)}


def response(dice: random.Random) -> dict[str, Any]:
    return {
        "input": text(dice),
        "max_output_tokens": dice.choice([1, 16, 60]),
        **maybe(dice, 0.3, instructions="Be brief."),
        **maybe(dice, 0.5, store=True),
        **maybe(dice, 0.3, tools=[{"type": "function", **FUNCTIONS[0]}], tool_choice="required"),
        **maybe(dice, 0.3, text={"format": {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}}),
    }


def message(dice: random.Random) -> dict[str, Any]:
    tools = [{"name": name, "input_schema": PARAMETERS} for name in NAMES]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text(dice)}],
        "max_tokens": dice.choice([1, 16, 60]),
        **maybe(dice, 0.3, system="Be brief."),
        **maybe(dice, 0.3, stop_sequences=["a", "the"]),
        **maybe(dice, 0.4, tools=tools, tool_choice={"type": dice.choice(["any", "auto"])}),
    }


def ollama(dice: random.Random) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "model": MODEL,
        "stream": False,
        "options": {"num_predict": dice.choice([1, 16, 60]), **maybe(dice, 0.3, temperature=0, stop=["a"])},
        **maybe(dice, 0.3, format=dice.choice(["json", SCHEMA])),
    }
    if dice.random() < 0.5:
        return "/api/generate", {**body, "prompt": text(dice)}
    tools = {} if "format" in body else maybe(dice, 0.4, tools=TOOLS)
    return "/api/chat", {**body, "messages": [{"role": "user", "content": text(dice)}], **tools}


def protocol_request(dice: random.Random) -> tuple[str, dict[str, Any]]:
    match dice.randrange(8):
        case 0:
            return RESPONSES, response(dice)
        case 1:
            return MESSAGES, message(dice)
        case 2:
            return ollama(dice)
        case 3:
            counted = {"model": MODEL, "messages": [{"role": "user", "content": text(dice)}]}
            asked: list[tuple[str, dict[str, Any]]] = [
                ("/tokenize", {"prompt": text(dice)}),
                ("/v1/detokenize", {"tokens": [dice.randrange(49000)]}),
            ]
            return dice.choice([*asked, ("/v1/messages/count_tokens", counted)])
    return CHAT, chat(dice)


def check(path: str, body: dict[str, Any], answer: Any) -> None:
    """What must hold for every answer, whatever was drawn. Raises AssertionError."""
    if path == CHAT:
        assert len(answer["choices"]) == body.get("n", 1)
        for choice in answer["choices"]:
            _check_choice(body, choice)
    elif path == RESPONSES:
        assert answer["status"] in ("completed", "incomplete")
        if answer["status"] == "completed" and "text" in body and "tools" not in body:
            json.loads("".join(part["text"] for item in answer["output"] for part in item.get("content", ())))
    elif path == MESSAGES:
        assert answer["stop_reason"] in ("end_turn", "max_tokens", "stop_sequence", "tool_use")
    elif path in OLLAMA:
        assert answer["done_reason"] in ("stop", "length")


def _check_choice(body: dict[str, Any], choice: dict[str, Any]) -> None:
    said, reason = choice["message"], choice["finish_reason"]
    calls = said.get("tool_calls") or []
    assert "\ufffd" not in (said["content"] or "") or reason != "stop" or "regex" not in body
    assert (reason == "tool_calls") <= bool(calls)
    assert bool(calls) <= ("tools" in body)
    if reason == "tool_calls":
        for call in calls:
            assert call["function"]["name"] in NAMES
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    whole = reason == "stop" and isinstance(choice["matched_stop"], int | None)
    if whole and "response_format" in body:
        value = json.loads(said["content"])
        assert body["response_format"]["type"] == "json_object" or value["n"] in ("é", 4, None)


def error_of(path: str, answer: Any) -> Any:
    """The error in the shape of the route's protocol: its message and what else it says. Raises AssertionError."""
    if path.startswith("/api/"):
        assert set(answer) == {"error"}, answer
        return {"message": answer["error"], "code": None}
    if path.startswith(MESSAGES):
        assert answer["type"] == "error", answer
        return {"message": answer["error"]["message"], "code": answer["error"]["type"]}
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}, answer
    return error
