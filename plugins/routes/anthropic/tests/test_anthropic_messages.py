"""What the model is asked, and the exact events of an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
)
from jackfield.testing.route_client import RouteClient
from jackfield.testing.scripted_runtime import CARD, ScriptedRuntime
from jackfield_routes_anthropic.options import AnthropicOptions
from jackfield_routes_anthropic.routes import routes

HI: list[Any] = [{"role": "user", "content": "Hi"}]
END = ChoiceEnded(index=0, reason="stop")
ALL: tuple[tuple[ChatEvent, ...], ...] = (
    (ReasoningDelta(index=0, text="Hm"), ReasoningDelta(index=0, text=".")),
    (ContentDelta(index=0, text="It "),),
    (),
    (ContentDelta(index=0, text="is"), CallBegan(index=0, call=0, id="c1", name="f")),
    (CallDelta(index=0, call=0, arguments='{"a"'), CallDelta(index=0, call=0, arguments=":1}")),
    (CallBegan(index=0, call=1, id="c2", name="g"), ChoiceEnded(index=0, reason="tool_calls")),
)


async def ask(runtime: ScriptedRuntime, options: AnthropicOptions | None = None, **more: Any) -> Any:
    async with RouteClient(routes(options or AnthropicOptions()), runtime) as client:
        return await client.post("/v1/messages", {"model": CARD.name, "max_tokens": 50, "messages": HI, **more})


async def asked(**more: Any) -> ChatRequest:
    runtime = ScriptedRuntime()
    answer = await ask(runtime, **more)
    assert answer.status_code == 200, answer.text
    (request,) = runtime.asked
    assert isinstance(request, ChatRequest)
    return request


def events(text: str) -> list[Any]:
    found = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


async def test_the_events_of_a_stream() -> None:
    start, *middle, delta, stop = events((await ask(ScriptedRuntime(ALL), stream=True)).text)
    message = start["message"]
    assert (start["type"], message["role"], message["content"], message["stop_reason"]) == (
        "message_start",
        "assistant",
        [],
        None,
    )
    assert (message["usage"]["cache_read_input_tokens"], message["usage"]["output_tokens"]) == (1, 0)

    def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": index, "content_block": content},
            *({"type": "content_block_delta", "index": index, "delta": one} for one in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    assert middle == [
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm"},
            {"type": "thinking_delta", "thinking": "."},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "It "},
            {"type": "text_delta", "text": "is"},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"a"'},
            {"type": "input_json_delta", "partial_json": ":1}"},
        ),
        *block(3, {"type": "tool_use", "id": "c2", "name": "g", "input": {}}),
    ]
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == 9
    assert stop == {"type": "message_stop"}


async def test_a_whole_answer_has_the_same_blocks() -> None:
    message = (await ask(ScriptedRuntime(ALL))).json()
    assert message["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "It is"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
    ]


@pytest.mark.parametrize(
    ("end", "more", "told"),
    [
        (END, {}, ("end_turn", None)),
        (ChoiceEnded(index=0, reason="stop", matched=2), {}, ("end_turn", None)),
        (ChoiceEnded(index=0, reason="stop", matched="X"), {}, ("stop_sequence", "X")),
        (ChoiceEnded(index=0, reason="length"), {}, ("max_tokens", None)),
        (ChoiceEnded(index=0, reason="length"), {"max_tokens": 4096}, ("model_context_window_exceeded", None)),
    ],
)
async def test_how_an_answer_ends(end: ChoiceEnded, more: Any, told: tuple[str, str | None]) -> None:
    message = (await ask(ScriptedRuntime(((end,),)), **more)).json()
    assert (message["stop_reason"], message["stop_sequence"]) == told
    assert message["content"] == []


async def test_b34_a_call_that_was_cut_off() -> None:
    batches = (
        (CallBegan(index=0, call=0, id="c", name="f"), CallDelta(index=0, call=0, arguments='{"a": ')),
        (ChoiceEnded(index=0, reason="length"),),
    )
    message = (await ask(ScriptedRuntime(batches))).json()
    assert message["content"][0]["input"] == {"INVALID_JSON": '{"a": '}
    assert message["stop_reason"] == "max_tokens"


async def test_an_error_half_way_is_an_event() -> None:
    runtime = ScriptedRuntime(ALL[:2], error=RouteError(503, "too much"))
    answer = await ask(runtime, stream=True)
    last = events(answer.text)[-1]
    assert last["error"] == {"type": "overloaded_error", "message": "too much"}
    assert last["request_id"] == answer.headers["request-id"]
    assert (await ask(runtime)).status_code == 503
    aborted = ScriptedRuntime(((ContentDelta(index=0, text="a"),), (ChoiceEnded(index=0, reason="abort"),)))
    assert events((await ask(aborted, stream=True)).text)[-1]["type"] == "error"


async def test_blocks_become_messages() -> None:
    request = await asked(
        system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}],
        messages=[
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "c"},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"é": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "d"}]},
                    {"type": "text", "text": "e"},
                ],
            },
        ],
    )
    assert request.messages == [
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "c"}],
            "reasoning_content": "hm",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"é": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "Error: no"},
        {"role": "tool", "tool_call_id": "2", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "e"}]},
    ]


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        ({"type": "auto"}, "auto", True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}, True),
        (None, None, True),
    ],
)
async def test_the_choice_of_tools(choice: Any, wanted: Any, parallel: bool) -> None:
    request = await asked(tools=[{"name": "f", "input_schema": {"type": "object"}}], tool_choice=choice)
    assert (request.tool_choice, request.parallel_tool_calls) == (wanted, parallel)
    (tool,) = request.tools
    assert tool["function"] == {"name": "f", "description": "", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "adaptive"}, None),
        ({"type": "enabled", "budget_tokens": 49}, True),
    ],
)
async def test_thinking(thinking: Any, wanted: bool | None) -> None:
    assert (await asked(thinking=thinking)).reasoning is wanted


async def test_the_rest_of_a_request() -> None:
    schema = {"type": "object"}
    request = await asked(
        temperature=0.5,
        top_k=3,
        stop_sequences=["X"],
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        messages=[*HI, {"role": "assistant", "content": "It"}],
    )
    assert request.sampling == {"temperature": 0.5, "top_k": 3, "stop": ["X"], "max_new_tokens": 50}
    assert request.continue_final_message
    assert request.reasoning_effort == "low"
    assert request.response_format is not None
    assert request.response_format["json_schema"]["schema"] == schema
    assert "max_new_tokens" not in (await asked(max_tokens=4096)).sampling


def refused() -> Sequence[tuple[dict[str, Any], str]]:
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [image]}
    call = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    return [
        ({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0] is of type image"),
        ({"messages": [{"role": "user", "content": [result]}]}, "messages[0].content[0].content[0] is of type image"),
        ({"messages": [{"role": "user", "content": [call]}]}, "does not belong into a message of the user"),
        ({"messages": [{"role": "assistant", "content": [call]}]}, "no message brings their results"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"max_tokens": None}, "max_tokens"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name is missing"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, "thinking.budget_tokens must be less"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
    ]


@pytest.mark.parametrize(("more", "said"), refused())
async def test_what_is_refused(more: dict[str, Any], said: str) -> None:
    answer = await ask(ScriptedRuntime(), **more)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert said in answer.json()["error"]["message"]


async def test_any_model_if_the_operator_says_so() -> None:
    assert (await ask(ScriptedRuntime(), model="claude-x")).status_code == 404
    answer = await ask(ScriptedRuntime(), AnthropicOptions(any_model=True), model="claude-x")
    assert answer.json()["model"] == "claude-x"
