"""The routes of Ollama's API, and the two that generate."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from jackfield.hookspecs import (
    ChatEvent,
    ChatRun,
    Route,
    RouteAnswer,
    RouteError,
    RouteLevel,
    RouteRequest,
    RouteStream,
    TextRequest,
)
from jackfield_routes_ollama import answers, models
from jackfield_routes_ollama.chat_request import of_chat, of_prompt
from jackfield_routes_ollama.examples import CHATS, PROMPTS
from jackfield_routes_ollama.options import OllamaOptions
from jackfield_routes_ollama.pieces import Piece, Pieces, Stopwatch, joined, now
from jackfield_routes_ollama.schemas import ChatBody, GenerateBody, ShowBody

NDJSON = "application/x-ndjson"
Wrap = Callable[[Piece], dict[str, Any]]
"""A piece as the route shows it."""


def routes(options: OllamaOptions) -> Sequence[Route]:
    common: dict[str, Any] = {"level": RouteLevel.KEY, "error_body": error_body, "error": answers.Error}
    generating = {**common, "methods": ("POST",), "generates": True, "stream_type": NDJSON}
    ceilings = {"messages": "max_messages", "tools": "max_tools"}

    async def version(request: RouteRequest) -> RouteAnswer:
        return RouteAnswer(body={"version": options.api_version})

    found = [
        Route(
            path="/api/chat",
            handler=chat,
            summary="Ollama's chat, through the model's chat template.",
            request=ChatBody,
            examples=CHATS,
            response=answers.ChatAnswer,
            stream=answers.ChatAnswer,
            ceilings=ceilings,
            **generating,
        ),
        Route(
            path="/api/generate",
            handler=generate,
            summary="Ollama's answer to one prompt.",
            request=GenerateBody,
            examples=PROMPTS,
            response=answers.GenerateAnswer,
            stream=answers.GenerateAnswer,
            **generating,
        ),
        Route(
            path="/api/show",
            methods=("POST",),
            handler=models.show,
            summary="What is known of the served model.",
            request=ShowBody,
            examples=({"model": "m"},),
            response=answers.Shown,
            **common,
        ),
    ]
    asked: tuple[tuple[str, Any, str, type[answers.Answer]], ...] = (
        ("/api/tags", models.tags, "The served model, as Ollama lists those it has.", answers.Tags),
        ("/api/ps", models.ps, "The served model, as Ollama lists those it has loaded.", answers.Processes),
        ("/api/version", version, "The version of Ollama whose API this follows.", answers.Version),
    )
    found += [
        Route(path=path, methods=("GET",), handler=handler, summary=summary, response=model, **common)
        for path, handler, summary, model in asked
    ]
    if options.root:
        found.append(
            Route(
                path="/",
                methods=("GET",),
                level=RouteLevel.OPEN,
                handler=root,
                summary="Ollama's sentence, by which its clients find a server.",
                answer="`Ollama is running`",
                media_type="text/plain",
            )
        )
    return found


def error_body(error: RouteError, request_id: str) -> dict[str, Any]:
    return {"error": error.message}


async def root(request: RouteRequest) -> RouteAnswer:
    return RouteAnswer(body=b"Ollama is running", media_type="text/plain; charset=utf-8")


async def chat(request: RouteRequest) -> RouteAnswer | RouteStream:
    body: ChatBody = request.body
    models.check_model(request.runtime.model, body.model)
    watch = Stopwatch()
    if not body.messages:
        return _loaded(body.model, _message)
    run = await request.runtime.chat(of_chat(body))
    return await _answer(run, body.model, body.stream is not False, _message, watch)


async def generate(request: RouteRequest) -> RouteAnswer | RouteStream:
    body: GenerateBody = request.body
    models.check_model(request.runtime.model, body.model)
    watch = Stopwatch()
    asked = of_prompt(body)
    if not body.prompt:
        return _loaded(body.model, _response)
    if isinstance(asked, TextRequest):
        run = await request.runtime.complete(asked)
    else:
        run = await request.runtime.chat(asked)
    return await _answer(run, body.model, body.stream is not False, _response, watch)


def _message(piece: Piece) -> dict[str, Any]:
    return {"message": {"role": "assistant", **piece}}


def _response(piece: Piece) -> dict[str, Any]:
    shown = {"response": piece["content"]}
    return {**shown, "thinking": piece["thinking"]} if "thinking" in piece else shown


def _loaded(model: str, wrap: Wrap) -> RouteAnswer:
    told = {"model": model, "created_at": now(), **wrap({"content": ""}), "done": True, "done_reason": "load"}
    return RouteAnswer(body=told)


async def _answer(run: ChatRun, model: str, streams: bool, wrap: Wrap, watch: Stopwatch) -> RouteAnswer | RouteStream:
    news = run.events()
    first = await anext(news)
    watch.first()
    if streams:
        return RouteStream(
            chunks=_lines(run, first, news, model, wrap, watch),
            media_type=NDJSON,
            last_words=lambda error: _line(error_body(error, "")),
        )
    pieces = Pieces()
    found = list(pieces.of(first))
    async for batch in news:
        found.extend(pieces.of(batch))
    end = watch.told(run.usage(), pieces.done_reason)
    return RouteAnswer(body={"model": model, "created_at": now(), **wrap(joined(found)), **end})


async def _lines(
    run: ChatRun,
    first: Sequence[ChatEvent],
    news: AsyncGenerator[Sequence[ChatEvent], None],
    model: str,
    wrap: Wrap,
    watch: Stopwatch,
) -> AsyncGenerator[bytes, None]:
    pieces = Pieces()
    batch: Sequence[ChatEvent] | None = first
    async with aclosing(news):
        while batch is not None:
            head = {"model": model, "created_at": now()}
            if lines := [_line({**head, **wrap(piece), "done": False}) for piece in pieces.of(batch)]:
                yield b"".join(lines)
            batch = await anext(news, None)
    end = watch.told(run.usage(), pieces.done_reason)
    yield _line({"model": model, "created_at": now(), **wrap({"content": ""}), **end})


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
