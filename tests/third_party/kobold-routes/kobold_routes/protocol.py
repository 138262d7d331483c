"""Bodies and handlers. A story is a plain prompt that goes on: no chat template."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import (
    ChatEvent,
    ContentDelta,
    RouteAnswer,
    RouteError,
    RouteRequest,
    RouteStream,
    TextRequest,
)

NAMES = {
    "input_ids": "prompt",
    "max_new_tokens": "max_length",
    "stop": "stop_sequence",
    "repetition_penalty": "rep_pen",
}


class Generate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt: str = Field(min_length=1)
    max_length: int = Field(80, ge=1, le=2**31 - 1)
    temperature: Any = None
    top_p: Any = None
    rep_pen: Any = None
    stop_sequence: list[str] | None = None


class Result(BaseModel):
    text: str


class Results(BaseModel):
    results: list[Result]


class Token(BaseModel):
    token: str


class Model(BaseModel):
    result: str


class Problem(BaseModel):
    detail: str


def problem(error: RouteError, request_id: str) -> dict[str, str]:
    return {"detail": error.message}


async def model(request: RouteRequest) -> RouteAnswer:
    return RouteAnswer(body={"result": request.runtime.model.name})


def asked(body: Generate, *, stream: bool) -> TextRequest:
    sampling: dict[str, Any] = {"max_new_tokens": body.max_length}
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "repetition_penalty": body.rep_pen,
        "stop": body.stop_sequence,
    }
    sampling |= {name: value for name, value in given.items() if value is not None}
    return TextRequest(prompt=body.prompt, sampling=sampling, stream=stream, names=NAMES)


async def generate(request: RouteRequest) -> RouteAnswer:
    run = await request.runtime.complete(asked(request.body, stream=False))
    return RouteAnswer(body={"results": [{"text": choice.content} for choice in await run.choices()]})


async def stream(request: RouteRequest) -> RouteStream:
    run = await request.runtime.complete(asked(request.body, stream=True))
    events = run.events()
    return RouteStream(chunks=tokens(await anext(events), events), last_words=lambda error: event(problem(error, "")))


async def tokens(
    first: Sequence[ChatEvent], more: AsyncGenerator[Sequence[ChatEvent], None]
) -> AsyncGenerator[bytes, None]:
    batch: Sequence[ChatEvent] | None = first
    async with aclosing(more):
        while batch is not None:
            for one in batch:
                if isinstance(one, ContentDelta) and one.text:
                    yield event({"token": one.text})
            batch = await anext(more, None)


def event(value: Any) -> bytes:
    return b"event: message\ndata: " + json.dumps(value).encode() + b"\n\n"
