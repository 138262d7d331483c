"""What clients are told of errors: one shape, the right status, and nothing of the inside (B20)."""

from __future__ import annotations

import pydantic
import pytest

from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.entrypoints.http.errors import GONE, INTERNAL, api_error, field_path
from jackfield.entrypoints.http.schemas.native import AbortBody
from jackfield.entrypoints.http.schemas.openai_chat import ChatBody
from jackfield.managers.errors import RequestError


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("secret path /etc/x"), 500, INTERNAL),
        (RequestError("CUDA error at 0x7f", status_code=500), 500, INTERNAL),
        (ReplicaFailed("the scheduler process 4711 died"), 500, GONE),
        (RequestError("temperature must be a number", param="temperature"), 400, "temperature must be a number"),
        (RequestError("the queue is full", status_code=503), 503, "the queue is full"),
    ],
)
def test_the_runtimes_errors_are_translated(error: Exception, status: int, message: str) -> None:
    told = api_error(error)
    assert (told.status, told.message) == (status, message)
    assert set(told.body["error"]) == {"message", "type", "param", "code"}
    assert ("retry-after" in told.headers) is (status == 503)


def test_a_field_has_the_name_that_the_client_used() -> None:
    names = {"input_ids": "messages", "max_new_tokens": "max_tokens", "prompt": "text"}
    told = api_error(RequestError("max_new_tokens must be 1, not input_ids", param="max_new_tokens"), names)
    assert (told.message, told.param) == ("max_tokens must be 1, not messages", "max_tokens")
    told = api_error(RequestError("The prompt has 9 tokens; shorten the prompt", param="prompt"), names)
    assert (told.message, told.param) == ("The prompt has 9 tokens; shorten the prompt", "text")


@pytest.mark.parametrize(
    ("model", "body", "param"),
    [
        (ChatBody, {}, "messages"),
        (ChatBody, {"messages": "hello"}, "messages"),
        (ChatBody, {"messages": [{"role": "user"}, {"role": "robot"}]}, "messages[1].role"),
        (ChatBody, {"messages": [{"content": "x"}]}, "messages[0].role"),
        (ChatBody, {"messages": [], "stream": "yes"}, "stream"),
        (ChatBody, {"messages": [], "max_tokens": 0}, "max_tokens"),
        (ChatBody, {"messages": [], "max_tokens": 1.5}, "max_tokens"),
        (ChatBody, {"messages": [], "max_tokens": True}, "max_tokens"),
        (ChatBody, {"messages": [], "chat_template": "{{ x }}"}, "chat_template"),
        (ChatBody, {"messages": [], "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        (AbortBody, {"rid": "x", "surprise": 1}, "surprise"),
    ],
)
def test_a_bad_field_is_a_400_with_its_path(model: type[pydantic.BaseModel], body: object, param: str) -> None:
    with pytest.raises(pydantic.ValidationError) as found:
        model.model_validate(body)
    told = api_error(found.value)
    assert (told.status, told.param) == (400, param)
    assert "pydantic" not in told.message.lower()


def test_a_path_names_fields_and_positions() -> None:
    assert field_path(("messages", 3, "content", "list[TextPart]", 0, "text")) == "messages[3].content[0].text"
