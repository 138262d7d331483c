"""What the model is asked, and the exact lines of an answer (inventory, trap 18: the last line must lose nothing)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackfield.hookspecs import (
    CallBegan,
    CallDelta,
    ChatEvent,
    ChatRequest,
    ChoiceEnded,
    ContentDelta,
    ReasoningDelta,
    RouteError,
    TextRequest,
)
from jackfield.testing.route_client import RouteClient
from jackfield.testing.scripted_runtime import CARD, ScriptedRuntime
from jackfield_routes_ollama.options import OllamaOptions
from jackfield_routes_ollama.routes import routes

HI: list[Any] = [{"role": "user", "content": "Hi"}]
ALL: tuple[tuple[ChatEvent, ...], ...] = (
    (ReasoningDelta(index=0, text="Hm."),),
    (ContentDelta(index=0, text="It is"), CallBegan(index=0, call=0, id="c1", name="f")),
    (CallDelta(index=0, call=0, arguments='{"a"'), CallDelta(index=0, call=0, arguments=":1}")),
    (
        CallBegan(index=0, call=1, id="c2", name="g"),
        CallDelta(index=0, call=1, arguments='{"b'),
        ChoiceEnded(index=0, reason="length"),
    ),
)
CALLS = [
    {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}},
    {"id": "c2", "function": {"name": "g", "arguments": {"INVALID_JSON": '{"b'}}},
]


async def ask(runtime: ScriptedRuntime, path: str = "/api/chat", **more: Any) -> Any:
    body = {"model": CARD.name, **({"messages": HI} if path == "/api/chat" else {"prompt": "Hi"}), **more}
    async with RouteClient(routes(OllamaOptions()), runtime) as client:
        return await client.post(path, body)


async def asked(path: str = "/api/chat", **more: Any) -> Any:
    runtime = ScriptedRuntime()
    answer = await ask(runtime, path, **more)
    assert answer.status_code == 200, answer.text
    (request,) = runtime.asked
    return request


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


async def test_the_lines_of_a_stream() -> None:
    *pieces, last = lines((await ask(ScriptedRuntime(ALL))).text)
    assert [piece["message"] for piece in pieces] == [
        {"role": "assistant", "content": "", "thinking": "Hm."},
        {"role": "assistant", "content": "It is"},
        {"role": "assistant", "content": "", "tool_calls": CALLS[:1]},
        {"role": "assistant", "content": "", "tool_calls": CALLS[1:]},
    ]
    assert {piece["done"] for piece in pieces} == {False}
    assert (last["message"], last["done"], last["done_reason"]) == (
        {"role": "assistant", "content": ""},
        True,
        "length",
    )
    assert (last["eval_count"], last["load_duration"]) == (8, 0)
    assert last["total_duration"] == last["prompt_eval_duration"] + last["eval_duration"]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_a_whole_answer_is_read_as_it_grows_for_its_times(path: str) -> None:
    # Read at its end, the first token came with the last one, and clients made 180,000 tokens a second of the rest.
    assert (await asked(path, stream=False)).stream


async def test_a_whole_answer_is_the_lines_joined() -> None:
    answer = (await ask(ScriptedRuntime(ALL), stream=False)).json()
    assert answer["message"] == {"role": "assistant", "content": "It is", "thinking": "Hm.", "tool_calls": CALLS}
    assert answer["done"] is True


async def test_text_that_comes_with_the_end_is_not_lost() -> None:
    batches = ((ContentDelta(index=0, text="all at once"), ChoiceEnded(index=0, reason="stop")),)
    first, last = lines((await ask(ScriptedRuntime(batches))).text)
    assert (first["message"]["content"], first["done"]) == ("all at once", False)
    assert (last["message"]["content"], last["done_reason"]) == ("", "stop")


async def test_an_error_half_way_is_a_line() -> None:
    runtime = ScriptedRuntime(ALL[:1], error=RouteError(503, "too much"))
    assert lines((await ask(runtime)).text)[-1] == {"error": "too much"}
    refusal = await ask(runtime, stream=False)
    assert (refusal.status_code, refusal.json()) == (503, {"error": "too much"})


async def test_results_belong_to_the_calls_of_their_tool() -> None:
    calls = [{"function": {"name": name, "arguments": {"n": i}}} for i, name in enumerate(("f", "g", "f"))]
    request = await asked(
        messages=[
            *HI,
            {"role": "assistant", "thinking": "hm", "tool_calls": calls},
            {"role": "tool", "tool_name": "g", "content": "of g"},
            {"role": "tool", "tool_name": "f", "content": "of f"},
            {"role": "tool", "content": "of the other f"},
        ]
    )
    _, called, *results = request.messages
    ids = [call["id"] for call in called["tool_calls"]]
    assert len(set(ids)) == 3
    assert called["reasoning_content"] == "hm"
    assert json.loads(called["tool_calls"][1]["function"]["arguments"]) == {"n": 1}
    assert [result["tool_call_id"] for result in results] == [ids[1], ids[0], ids[2]]


@pytest.mark.parametrize(
    ("options", "sampling"),
    [
        ({}, {}),
        ({"num_predict": -1, "num_ctx": 64, "num_gpu": 9}, {}),
        ({"num_predict": 0}, {"max_new_tokens": 0}),
        ({"num_predict": 5, "stop": ["X"], "seed": 1}, {"max_new_tokens": 5, "stop": ["X"], "seed": 1}),
        ({"top_k": 0, "repeat_penalty": 1.1}, {"top_k": -1, "repetition_penalty": 1.1}),
        ({"mirostat": 0, "typical_p": 1.0, "tfs_z": 1, "temperature": 0}, {"temperature": 0}),
    ],
)
async def test_options(options: Any, sampling: Any) -> None:
    assert (await asked(options=options)).sampling == sampling


@pytest.mark.parametrize(
    ("think", "reasoning", "effort"),
    [(None, None, None), (True, True, None), (False, False, None), ("low", True, "low")],
)
async def test_think(think: Any, reasoning: bool | None, effort: str | None) -> None:
    request = await asked(think=think)
    assert (request.reasoning, request.reasoning_effort) == (reasoning, effort)


async def test_format() -> None:
    assert (await asked(format="")).response_format is None
    assert (await asked(format="json")).response_format == {"type": "json_object"}
    schema = {"type": "object"}
    assert (await asked(format=schema)).response_format["json_schema"]["schema"] == schema


async def test_a_prompt_is_a_turn_or_raw() -> None:
    chat = await asked("/api/generate", system="Be brief.")
    assert isinstance(chat, ChatRequest)
    assert [message["role"] for message in chat.messages] == ["system", "user"]
    raw = await asked("/api/generate", raw=True)
    assert isinstance(raw, TextRequest)
    assert raw.prompt == "Hi"
    *pieces, last = lines((await ask(ScriptedRuntime(ALL[:1] + ALL[3:]), "/api/generate")).text)
    assert (pieces[0]["response"], pieces[0]["thinking"], last["response"]) == ("", "Hm.", "")


async def test_nothing_to_answer_loads() -> None:
    runtime = ScriptedRuntime()
    for path, empty in (("/api/chat", {"messages": []}), ("/api/generate", {"prompt": ""})):
        answer = (await ask(runtime, path, **empty)).json()
        assert (answer["done"], answer["done_reason"]) == (True, "load")
    assert runtime.asked == []


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        ("/api/chat", {"model": "other"}, "model 'other' not found"),
        ("/api/chat", {"options": {"mirostat": 2}}, "options.mirostat is not supported"),
        ("/api/chat", {"think": "much"}, "think must be"),
        ("/api/chat", {"format": 3}, "format must be"),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "reads text only"),
        ("/api/generate", {"suffix": "x"}, "suffix is not supported"),
        ("/api/generate", {"context": [1]}, "context is not supported"),
        ("/api/generate", {"raw": True, "format": "json"}, "format is not supported with raw"),
    ],
)
async def test_what_is_refused(path: str, more: dict[str, Any], said: str) -> None:
    answer = await ask(ScriptedRuntime(), path, **more)
    assert answer.status_code in (400, 404)
    assert said in answer.json()["error"]


async def test_the_tag_is_optional() -> None:
    assert (await ask(ScriptedRuntime(), model=f"{CARD.name}:latest")).status_code == 200
    assert (await ask(ScriptedRuntime(), model=f"{CARD.name}:7b")).status_code == 404
