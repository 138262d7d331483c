"""`/v1/responses` with OpenAI's own client: answers, streams, tools, what is stored, and what runs in the background."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import openai
import pytest

from jackfield.entrypoints.http.schemas.responses import Response, ResponseEvent
from tests.e2e.http.servers import DEADLINE, SIMULATED, SLOW, Server, script, serving, until

RESPONSES = "/v1/responses"
MODEL = "SmolLM2-135M-Instruct"
Clients = Callable[..., openai.OpenAI]
TEXT = '<think>Hm.</think>It is\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
TOOL: Any = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
FLAGS = ("--tool-call-parser", "hermes", "--reasoning-parser", "think", "--max-total-tokens", "20000")
KEYS = ("--api-key", "one", "--admin-api-key", "two")


@pytest.fixture(scope="module")
def stateless() -> Iterator[Server]:
    with serving(*SIMULATED, *script(TEXT), *FLAGS) as up:
        yield up


@pytest.fixture(scope="module")
def keeping() -> Iterator[Server]:
    store = ("--enable-response-store", "--response-store-entries", "4")
    with serving(*SIMULATED, *SLOW, *script(TEXT), *FLAGS, *KEYS, *store, check=False) as up:
        yield up


@pytest.fixture
def clients() -> Iterator[Clients]:
    """client(server, key), closed at the end."""
    with ExitStack() as opened:

        def client(server: Server, key: str = "one") -> openai.OpenAI:
            made = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=DEADLINE)
            return opened.enter_context(made)

        yield client


def test_an_answer_has_its_items_in_order(stateless: Server, clients: Clients) -> None:
    found = clients(stateless).responses.create(
        model=MODEL, input="hello", temperature=0, tools=[TOOL], instructions="Be."
    )
    assert [item.type for item in found.output] == ["reasoning", "message", "function_call"]
    assert found.output_text.strip() == "It is"
    call: Any = found.output[2]
    assert (call.name, json.loads(call.arguments)) == ("f", {"a": "é"})
    assert call.call_id.startswith("call_")
    assert (found.status, found.store if hasattr(found, "store") else False) == ("completed", False)
    assert found.usage is not None
    assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens


def test_a_stream_tells_the_same_in_typed_events(stateless: Server) -> None:
    body = {"input": "hello", "temperature": 0, "tools": [TOOL], "include": ["message.output_text.logprobs"]}
    whole = stateless.post(RESPONSES, body).json()
    Response.model_validate(whole)
    answer = stateless.post(RESPONSES, {**body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in answer.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        ResponseEvent.model_validate(event)
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    assert found[-1]["type"] == "response.completed"

    def plain(response: Any) -> Any:
        items = [{**item, "id": "", "call_id": ""} for item in response["output"]]
        return items, {**response["usage"], "input_tokens_details": None}, response["status"]

    assert plain(found[-1]["response"]) == plain(whole)
    text = "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")
    assert text == next(item for item in whole["output"] if item["type"] == "message")["content"][0]["text"]


def test_the_clients_stream_helper(stateless: Server, clients: Clients) -> None:
    with clients(stateless).responses.stream(model=MODEL, input="hello", temperature=0, tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[-1] == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


def test_a_cut_answer_is_incomplete(stateless: Server) -> None:
    found = stateless.post(RESPONSES, {"input": "hello", "max_output_tokens": 2}).json()
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    events = stateless.post(RESPONSES, {"input": "hello", "max_output_tokens": 2, "stream": True}).text
    assert "event: response.incomplete\n" in events


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "file:///x"}]}]},
         "input[0].content[0].type"),
        ({"input": "word " * 9000}, "input"),
        ({"input": "x", "temperature": -1}, "temperature"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "top_logprobs": 2}, "top_logprobs"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": "x", "reasoning": {"effort": "a b"}}, "reasoning.effort"),
        ({"input": "x", "truncation": "auto"}, "truncation"),
        ({"input": "x", "conversation": "c"}, "conversation"),
        ({"input": "x", "store": True}, "store"),
        ({"input": "x", "background": True}, "background"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)  # fmt: skip
def test_what_is_refused_names_the_field(stateless: Server, body: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        answer = stateless.post(RESPONSES, {**body, "stream": stream})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param


def test_without_a_store_its_routes_name_the_flag(stateless: Server) -> None:
    answers = [stateless.get(f"{RESPONSES}/resp_1"), stateless.post(f"{RESPONSES}/resp_1/cancel", None)]
    with stateless.client() as plain:
        answers.append(plain.delete(f"{RESPONSES}/resp_1"))
    for answer in answers:
        assert answer.status_code == 400
        assert "--enable-response-store" in answer.json()["error"]["message"]


def test_a_stored_response_is_found_continued_and_deleted_by_its_key_alone(keeping: Server, clients: Clients) -> None:
    one, two = clients(keeping), clients(keeping, "two")
    first = one.responses.create(model=MODEL, input="hello", temperature=0, tools=[TOOL])
    assert one.responses.retrieve(first.id).output == first.output
    call: Any = first.output[2]
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    second = one.responses.create(model=MODEL, input=[output], previous_response_id=first.id, tools=[TOOL])
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + 5
    with pytest.raises(openai.NotFoundError):
        two.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        two.responses.create(model=MODEL, input="x", previous_response_id=first.id)
    with pytest.raises(openai.NotFoundError):
        two.responses.delete(first.id)
    one.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        one.responses.retrieve(first.id)
    unkept = one.responses.create(model=MODEL, input="hello", max_output_tokens=1, store=False)
    with pytest.raises(openai.NotFoundError):
        one.responses.retrieve(unkept.id)
    with pytest.raises(openai.BadRequestError, match="background"):
        one.responses.cancel(second.id)


def test_a_response_in_the_background_is_finished_or_cancelled(keeping: Server, clients: Clients) -> None:
    one = clients(keeping)
    begun = one.responses.create(model=MODEL, input="hello", background=True, temperature=0)
    assert begun.status == "in_progress"
    until(lambda: one.responses.retrieve(begun.id).status == "completed")
    found = one.responses.retrieve(begun.id)
    assert found.output_text.startswith("It is")
    assert one.responses.cancel(begun.id).status == "completed"
    for end in ("cancel", "delete"):
        running = one.responses.create(model=MODEL, input="hello", background=True)
        if end == "cancel":
            assert one.responses.cancel(running.id).status == "cancelled"
            assert one.responses.retrieve(running.id).status == "cancelled"
        else:
            one.responses.delete(running.id)
            with pytest.raises(openai.NotFoundError):
                one.responses.retrieve(running.id)
    with pytest.raises(openai.BadRequestError):
        one.responses.create(model=MODEL, input="hello", background=True, temperature=-1)
    with keeping.client(headers={"authorization": "Bearer two"}) as admin:
        until(lambda: admin.get("/server_info").json()["scheduler"]["running"] == 0)
        kv = admin.get("/server_info").json()["kv"]
        assert kv["free"] + kv["evictable"] == kv["total"]
