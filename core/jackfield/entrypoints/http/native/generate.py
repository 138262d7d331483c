"""`/generate`: SGLang's own route."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence

from jackfield.entrypoints.calls import Answer, final_answer, news
from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import (
    Exchange,
    Reply,
    check_ids_count,
    check_prompt_count,
    json_response,
)
from jackfield.entrypoints.http.schemas.native import GenerateBody
from jackfield.entrypoints.http.sse import DONE, EventStream, event
from jackfield.managers.fields.not_yet import NOT_YET, refuse_not_yet
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.req_state import ReqState

_TAKEN = (
    "text",
    "input_ids",
    "sampling_params",
    "rid",
    "stream",
    "cache_salt",
    "priority",
    "tenant",
    "deadline_s",
    "session_params",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
    "return_prompt_token_ids",
    "extra_key",
    "log_metrics",
    "no_logs",
)
_UNUSED = (
    "routing_key",
    "conversation_id",
    "custom_labels",
    "external_trace_header",
    "received_time",
    "validation_time",
    "kv_hints",
)
_NOT_YET = tuple(name for name in GenerateBody.model_fields if name not in (*_TAKEN, *_UNUSED))


async def generate(exchange: Exchange) -> Reply:
    body: GenerateBody = exchange.body
    exchange.names.update(prompt="text")
    if body.text is not None:
        # What is found out about the ids of a text is told of the text.
        exchange.names.update(input_ids="text")
    request = _request(exchange, body)
    service = exchange.service
    call = await exchange.submit(lambda: request)
    if not request.stream:
        answers = await service.answers(call, final_answer)
        for answer in answers:
            _stamp(answer)
        return json_response(answers if request.is_batch else answers[0])
    batched = request.is_batch
    updates = service.news(call, lambda states: _updates(states, batched, service.args.incremental_streaming_output))
    # The first news come before the status is sent: a request that is refused only now is still a plain error.
    return EventStream(_events(await anext(updates), updates))


def _request(exchange: Exchange, body: GenerateBody) -> GenerateRequest:
    _refuse_not_yet(body)
    if (body.text is None) == (body.input_ids is None):
        raise ApiError(400, "give exactly one of text and input_ids", param="text", code="invalid_value")
    for name, value in (("text", body.text), ("input_ids", body.input_ids)):
        check_prompt_count(exchange, value, name)
    check_ids_count(exchange, body.input_ids, "input_ids")
    return GenerateRequest(
        prompt=body.text,
        input_ids=body.input_ids,
        sampling_params=body.sampling_params,
        stream=bool(body.stream),
        rid=body.rid,
        call_id=exchange.label,
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
        session_params=body.session_params,
        return_logprob=body.return_logprob,
        logprob_start_len=body.logprob_start_len,
        top_logprobs_num=body.top_logprobs_num,
        token_ids_logprob=body.token_ids_logprob,
        return_text_in_logprobs=body.return_text_in_logprobs,
        return_prompt_token_ids=body.return_prompt_token_ids,
        extra_key=body.extra_key,
        log_metrics=body.log_metrics,
    )


def _refuse_not_yet(body: GenerateBody) -> None:
    sent = {name: value for name in _NOT_YET if (value := getattr(body, name)) is not None}
    refuse_not_yet(sent)
    for name, value in sent.items():
        if name not in NOT_YET and value:
            raise ApiError(400, f"{name} is not supported by this version", param=name, code="not_supported")


def _updates(states: Sequence[ReqState], batched: bool, incremental: bool) -> list[Answer]:
    answers = news(states, batched)
    if incremental:
        by_index = {state.index: state for state in states}
        for answer in answers:
            # A single request has no index in its answer; it is the only state.
            state = by_index[answer.get("index", 0)]
            answer["text"], answer["output_ids"] = state.delta()
            answer["meta_info"] = state.meta_info(state.new_entries())
    for answer in answers:
        _stamp(answer)
    return answers


def _stamp(answer: Answer) -> None:
    """A complete answer says when it went out."""
    if answer["meta_info"]["finish_reason"] is not None:
        answer["meta_info"]["response_sent_to_client_ts"] = time.time()


async def _events(first: list[Answer], updates: AsyncGenerator[list[Answer], None]) -> AsyncGenerator[bytes, None]:
    try:
        yield b"".join(map(event, first))
        async for answers in updates:
            yield b"".join(map(event, answers))
        yield DONE
    finally:
        await updates.aclose()
