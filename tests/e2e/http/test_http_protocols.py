"""The official clients of Anthropic and Ollama against a real server that answers a think, a sentence and a call to everything.

Without tools the call is text, as the model wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import ollama
import pytest

from tests.e2e.http.servers import DEADLINE, PLAIN, SIMULATED, Server, serving, until

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TEXT = f"<think>\nHm, 😀.\n</think>\n\nIt is sunny.\n{CALL}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SAID = "It is sunny."


MINE = """
from jackfield.hookspecs import ChatRequest, Route, RouteAnswer, RouteLevel, hookimpl

PLUGIN = {"kind": "routes", "name": "mine", "summary": "Mine", "contract": {"routes": "0.1"}}


async def fail(request):
    raise SystemExit("not the server's end")


async def sneak(request):
    await request.runtime.chat(ChatRequest(messages=[{"role": "user", "content": "x"}]))


async def leave_open(request):
    run = await request.runtime.chat(ChatRequest(messages=[{"role": "user", "content": "x"}], stream=True))
    return RouteAnswer(body={"prompt_tokens": run.prompt_tokens, "model": request.runtime.model.name})


@hookimpl
def jackfield_routes(context):
    common = {"methods": ("GET",), "level": RouteLevel.KEY, "summary": "Mine.", "answer": "an object"}
    return [
        Route(path="/mine/fail", handler=fail, **common),
        Route(path="/mine/sneak", handler=sneak, **common),
        Route(path="/mine/open", handler=leave_open, generates=True, **common),
    ]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    mine = tmp_path_factory.mktemp("routes") / "mine.py"
    mine.write_text(MINE)
    flags = (
        *("--plugin", str(mine), "--routes", "auto,mine"),
        *("--tool-call-parser", "hermes", "--reasoning-parser", "think", "--api-key", "sk-mine"),
    )
    script = ("--option", f"worker.simulated.script={json.dumps(TEXT, ensure_ascii=False)}")
    with serving(*SIMULATED, *flags, *script, "--max-total-tokens", "20000", check=False) as up:
        yield up


@pytest.fixture(scope="module")
def name(served: Server) -> str:
    models = served.get("/v1/models", headers={"x-api-key": "sk-mine"}).json()
    return str(models["data"][0]["id"])


# Anthropic


@pytest.fixture(scope="module")
def claude(served: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="sk-mine", max_retries=0, timeout=DEADLINE) as client:
        yield client


TOOLS: Any = [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}]


def asked(name: str, **more: Any) -> dict[str, Any]:
    return {"model": name, "max_tokens": 200, "messages": [{"role": "user", "content": "How is it?"}], **more}


def blocks(message: Any) -> list[Any]:
    return [block.model_dump(exclude_none=True) for block in message.content]


def test_anthropic_message(claude: anthropic.Anthropic, name: str) -> None:
    message = claude.messages.create(**asked(name, system="Be brief.", tools=TOOLS))
    thinking, text, call = blocks(message)
    assert (thinking["type"], thinking["thinking"].strip()) == ("thinking", "Hm, 😀.")
    assert text["text"].strip() == SAID
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "weather", {"city": "Paris"})
    assert (message.stop_reason, message.stop_sequence, message.role) == ("tool_use", None, "assistant")
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 10


def test_anthropic_stream_is_the_message(claude: anthropic.Anthropic, name: str) -> None:
    whole = claude.messages.create(**asked(name, tools=TOOLS))
    with claude.messages.stream(**asked(name, tools=TOOLS)) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    theirs, ours = blocks(streamed), blocks(whole)
    for message in (theirs, ours):
        message[2].pop("id")
    assert theirs == ours
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3


def test_anthropic_without_tools_a_call_is_text(claude: anthropic.Anthropic, name: str) -> None:
    message = claude.messages.create(**asked(name))
    assert [block["type"] for block in blocks(message)] == ["thinking", "text"]
    assert CALL in blocks(message)[1]["text"]
    assert message.stop_reason == "end_turn"


def test_anthropic_ends(claude: anthropic.Anthropic, name: str) -> None:
    cut = claude.messages.create(**asked(name, max_tokens=3))
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)
    stopped = claude.messages.create(**asked(name, stop_sequences=["sunny"]))
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "sunny")
    assert blocks(stopped)[-1]["text"].strip() == "It is"


def test_anthropic_takes_its_own_answers_back(claude: anthropic.Anthropic, name: str) -> None:
    first = claude.messages.create(**asked(name, tools=TOOLS))
    call = next(block for block in first.content if block.type == "tool_use")
    history: Any = [
        {"role": "user", "content": "How is it?"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    assert claude.messages.create(**asked(name, tools=TOOLS, messages=history)).content
    few = claude.messages.count_tokens(model=name, messages=history[:1])
    many = claude.messages.count_tokens(model=name, messages=history, tools=TOOLS)
    assert 0 < few.input_tokens < many.input_tokens


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"model": "claude-x"}, anthropic.NotFoundError, "'claude-x' is not served"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "max_tokens"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, anthropic.BadRequestError, "tools[0]"),
        ({"tool_choice": {"type": "tool", "name": "nobody"}, "tools": TOOLS}, anthropic.BadRequestError, "tool_choice"),
        ({"extra_body": {"temperature": -1}}, anthropic.BadRequestError, "temperature"),
    ],
)
def test_b20_anthropic_refusals(claude: anthropic.Anthropic, name: str, more: Any, error: Any, said: str) -> None:
    with pytest.raises(error) as refused:
        claude.messages.create(**asked(name) | more)
    assert said in str(refused.value)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["request_id"] == refused.value.request_id


def test_b86_anthropic_images_are_refused(claude: anthropic.Anthropic, name: str) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:1/x.png"}}
    with pytest.raises(anthropic.BadRequestError, match="reads text only"):
        claude.messages.create(**asked(name, messages=[{"role": "user", "content": [image]}]))


def test_b82_anthropic_keys(served: Server, name: str) -> None:
    with (
        anthropic.Anthropic(base_url=served.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError) as refused,
    ):
        stranger.messages.create(**asked(name))
    body: Any = refused.value.body
    assert body["error"]["type"] == "authentication_error"


# Ollama


@pytest.fixture(scope="module")
def llama(served: Server) -> Iterator[ollama.Client]:
    client = ollama.Client(host=served.url, headers={"authorization": "Bearer sk-mine"}, **PLAIN)
    yield client
    client._client.close()


FUNCTIONS: Any = [{"type": "function", "function": {"name": "weather", "description": "", "parameters": SCHEMA}}]
TURN: Any = [{"role": "user", "content": "How is it?"}]


def test_ollama_chat(llama: Any, name: str) -> None:
    answer = llama.chat(name, TURN, tools=FUNCTIONS)
    assert answer.message.content.strip() == SAID
    assert answer.message.thinking.strip() == "Hm, 😀."
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Paris"})
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.prompt_eval_count > 0
    assert answer.eval_count > 10
    assert answer.total_duration == answer.prompt_eval_duration + answer.eval_duration > 0


def test_ollama_stream_loses_nothing(llama: Any, name: str) -> None:
    whole = llama.chat(name, TURN, tools=FUNCTIONS)
    pieces = list(llama.chat(name, TURN, tools=FUNCTIONS, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert "".join(piece.message.thinking or "" for piece in pieces) == whole.message.thinking
    calls = [call for piece in pieces for call in piece.message.tool_calls or ()]
    assert [call.function.arguments for call in calls] == [{"city": "Paris"}]
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].message.content == ""
    assert pieces[-1].eval_count == whole.eval_count


def test_ollama_generate(llama: Any, name: str) -> None:
    whole = llama.generate(name, "How is it?")
    assert SAID in whole.response
    assert whole.thinking is not None
    pieces = list(llama.generate(name, "How is it?", stream=True, options={"num_predict": 200, "num_ctx": 64}))
    assert "".join(piece.response for piece in pieces) == whole.response
    raw = llama.generate(name, "How is it?", raw=True)
    assert raw.response == TEXT
    cut = llama.generate(name, "How is it?", options={"num_predict": 2})
    assert (cut.done_reason, cut.eval_count) == ("length", 2)
    assert llama.generate(name, "").done_reason == "load"


def test_ollama_models(llama: Any, name: str) -> None:
    (listed,) = llama.list().models
    (running,) = llama.ps().models
    shown = llama.show(f"{name}:latest")
    assert listed.model == running.model == name
    assert listed.digest == running.digest
    assert listed.size > 1000
    assert shown.template
    assert "completion" in shown.capabilities
    assert shown.modelinfo[f"{shown.details.family}.context_length"] == running.context_length


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"model": "other"}, 404, "not found"),
        ({"options": {"temperature": -1}}, 400, "options.temperature"),
        ({"options": {"mirostat": 1}}, 400, "options.mirostat"),
        ({"format": "yaml"}, 400, "format"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, 400, "reads text only"),
    ],
)
def test_b20_ollama_refusals(served: Server, name: str, more: Any, status: int, said: str) -> None:
    body = {"model": name, "messages": TURN, **more}
    answer = served.post("/api/chat", body, headers={"authorization": "Bearer sk-mine"})
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert said in answer.json()["error"]


# a stranger's, which fails


def test_a_strangers_routes_fail_alone(served: Server, name: str) -> None:
    key = {"x-api-key": "sk-mine"}
    for path in ("/mine/fail", "/mine/sneak"):
        answer = served.get(path, headers=key)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "plugin_failed"
    left = served.get("/mine/open", headers=key).json()
    assert left["model"] == name
    assert left["prompt_tokens"] > 0
    assert served.get("/mine/fail").status_code == 401
    told = served.get("/plugins", headers=key).json()
    assert told["hooks"]["routes.mine"]["handle"] | {"seconds": 0} == {
        "calls": 3,
        "seconds": 0,
        "exceptions": 2,
        "overruns": 0,
    }
    assert told["faults"]["routes.mine"]["by_scope"] == {"request": 2}
    paths = served.get("/openapi.json", headers=key).json()["paths"]
    assert {"/mine/fail", "/v1/messages", "/api/chat", "/v1/chat/completions"} <= set(paths)


def test_all_was_paid_back(served: Server) -> None:
    def state() -> Any:
        return served.get("/server_info", headers={"x-api-key": "sk-mine"}).json()

    until(lambda: (state()["scheduler"]["running"], state()["scheduler"]["waiting"]) == (0, 0))
    kv = state()["kv"]
    assert kv["free"] + kv["evictable"] == kv["total"]
    assert [fault for fault in state()["faults"] if fault.startswith("routes.")] == ["routes.mine"]
