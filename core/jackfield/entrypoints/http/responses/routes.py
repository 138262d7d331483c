"""`/v1/responses`: OpenAI's newer interface over the same chats, with an opt-in store. What it does is in `docs/openai.md`.

Policies: without --enable-response-store nothing is kept, and what needs it (`store: true`, `background`, `previous_response_id`,
and the routes by id) is a 400 that names the flag; with it a response is kept unless `store` is false. A response belongs to
the API key that made it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from jackfield.entrypoints.http.chat_runs import ChatRuns
from jackfield.entrypoints.http.errors import ApiError, api_error, unavailable
from jackfield.entrypoints.http.exchange import Exchange, Reply, check_model, json_response
from jackfield.entrypoints.http.guards.auth import owner_of
from jackfield.entrypoints.http.openai.logprobs import top_logprobs
from jackfield.entrypoints.http.responses.input_items import (
    chat_choice,
    chat_format,
    chat_tools,
    input_messages,
    messages_of,
)
from jackfield.entrypoints.http.responses.response import Responding
from jackfield.entrypoints.http.responses.store import ResponseStore, Stored
from jackfield.entrypoints.http.schemas.responses import ResponseBody
from jackfield.entrypoints.http.sse import EventStream
from jackfield.hookspecs.chat import ChatRequest

log = logging.getLogger(__name__)

NAMES = {
    "input_ids": "input",
    "messages": "input",
    "max_new_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "top_logprobs_num": "top_logprobs",
    "return_logprob": "include",
}
SCORES = "message.output_text.logprobs"
_SAMPLING = ("temperature", "top_p", "seed", "stop")


async def create_response(exchange: Exchange) -> Reply:
    body: ResponseBody = exchange.body
    check_model(exchange, body.model)
    store = _needed_store(exchange, body)
    owner = owner_of(exchange.headers)
    conversation = [*_earlier(body, store, owner), *input_messages(body.input, exchange.service.args.max_messages)]
    request = _request(exchange, body, conversation)
    name = f"resp_{uuid.uuid4().hex}"
    keeping = store if body.store is not False else None

    def keep(complete: dict[str, Any]) -> bool:
        assert keeping is not None, "only what is stored is kept"
        if body.background and keeping.get(name, owner) is None:
            return True  # deleted while it was written: it stays deleted
        stored = Stored(owner=owner, response=complete, messages=conversation)
        if keeping.put(stored):
            return True
        log.warning("response %s is not kept: it does not fit into the store", name)
        if body.background:
            error = {"code": "response_too_large", "message": "The response does not fit into the store."}
            keeping.put(replace(stored, response={**complete, "status": "failed", "output": [], "error": error}))
        return False

    model = exchange.service.serving.replica.model_name
    made = Responding(name, model, body, stored=keeping is not None, keep=keep)
    if body.background:
        assert keeping is not None
        stored = Stored(owner=owner, response=made.object, messages=conversation, busy=True)
        return await _in_background(exchange, request, made, keeping, stored)
    made.run = await ChatRuns(exchange).chat(request, rid=name)
    if not body.stream:
        return json_response(await made.finish())
    events = made.events()
    return EventStream(_after(await anext(events), events))


async def _in_background(
    exchange: Exchange, request: ChatRequest, made: Responding, store: ResponseStore, stored: Stored
) -> Reply:
    """It goes on when this request has its answer, and counts as a request of its own."""
    name = made.object["id"]
    if not store.put(stored):
        raise unavailable("the response store is full (--response-store-entries, --response-store-bytes)", "store_full")
    try:
        exchange.service.enter()
        try:
            made.run = await ChatRuns(exchange).chat(request, rid=name)
            stored.task = asyncio.create_task(_write(exchange, made), name=name)
        finally:
            if stored.task is None:
                exchange.service.leave()
    finally:
        if stored.task is None:
            store.delete(name, stored.owner)
    return json_response(made.object)


async def _after(first: bytes, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield first
        async for event in events:
            yield event
    finally:
        await events.aclose()


async def _write(exchange: Exchange, made: Responding) -> None:
    try:
        await made.finish()
    except asyncio.CancelledError:
        made.cancelled()
    except Exception as error:
        made.failed(api_error(error, NAMES))
    finally:
        exchange.service.leave()


async def stored_response(exchange: Exchange) -> Reply:
    """GET tells it, DELETE forgets it, and ends it if it is still being written."""
    store, name = _store(exchange), exchange.path["response_id"]
    if exchange.method == "DELETE":
        found = store.delete(name, owner_of(exchange.headers))
        if found is not None and found.task is not None:
            await _cancel(found.task)
    else:
        found = store.get(name, owner_of(exchange.headers))
    if found is None:
        raise _unknown(name)
    if exchange.method == "DELETE":
        return json_response({"id": name, "object": "response", "deleted": True})
    return json_response(found.response)


async def cancel_response(exchange: Exchange) -> Reply:
    store, name = _store(exchange), exchange.path["response_id"]
    owner = owner_of(exchange.headers)
    found = store.get(name, owner)
    if found is None:
        raise _unknown(name)
    if not found.response["background"]:
        raise ApiError(400, "only a response with background: true can be cancelled", code="invalid_value")
    if found.task is not None:
        await _cancel(found.task)
        found = store.get(name, owner) or found
    return json_response(found.response)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _store(exchange: Exchange) -> ResponseStore:
    store = exchange.service.responses
    if store is None:
        raise ApiError(
            400, "responses are not kept here: the server needs --enable-response-store", code="response_store_disabled"
        )
    return store


def _needed_store(exchange: Exchange, body: ResponseBody) -> ResponseStore | None:
    """None: nothing is to be kept and nothing was. Raises ApiError naming the field that needs the store."""
    if body.background and body.stream:
        raise ApiError(400, "background and stream exclude each other here", param="background", code="not_supported")
    if body.background and body.store is False:
        raise ApiError(400, "background needs store: true, or none", param="background", code="invalid_value")
    if exchange.service.responses is None:
        for name in ("store", "background", "previous_response_id"):
            if getattr(body, name):
                raise ApiError(
                    400,
                    f"{name}: responses are not kept here: the server needs --enable-response-store",
                    param=name,
                    code="response_store_disabled",
                )
    return exchange.service.responses


def _earlier(body: ResponseBody, store: ResponseStore | None, owner: bytes) -> list[dict[str, Any]]:
    """The conversation that is continued."""
    name = body.previous_response_id
    if name is None or store is None:
        return []
    found = store.get(name, owner)
    if found is None:
        raise ApiError(
            400,
            f"previous_response_id: there is no response {name[:80]!r} (any more)",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if found.response["status"] not in ("completed", "incomplete"):
        raise ApiError(
            400,
            f"previous_response_id: that response is {found.response['status']}",
            param="previous_response_id",
            code="invalid_value",
        )
    said = messages_of((item, "previous_response_id") for item in found.response["output"])
    return [*found.messages, *said]


def _request(exchange: Exchange, body: ResponseBody, conversation: list[dict[str, Any]]) -> ChatRequest:
    sampling = {name: value for name in _SAMPLING if (value := getattr(body, name)) is not None}
    if body.max_output_tokens is not None:
        sampling["max_new_tokens"] = body.max_output_tokens
    first = [] if body.instructions is None else [{"role": "system", "content": body.instructions}]
    scored = SCORES in (body.include or ())
    return ChatRequest(
        messages=[*first, *conversation],
        tools=chat_tools(body.tools),
        tool_choice=chat_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response_format=None if body.text is None else chat_format(body.text.format),
        sampling=sampling,
        stream=bool(body.stream),
        reasoning_effort=None if body.reasoning is None else body.reasoning.effort,
        template_kwargs=body.chat_template_kwargs or {},
        logprobs=top_logprobs(exchange, body.top_logprobs, wanted=scored, needs=f"include: [{SCORES!r}]"),
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
        names=NAMES,
    )


def _unknown(name: str) -> ApiError:
    return ApiError(404, f"there is no response {name[:80]!r} (any more)", param="response_id", code="not_found")
