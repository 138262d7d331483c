"""Routes with one fault each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import (
    ChatRequest,
    ContentDelta,
    Route,
    RouteAnswer,
    RouteError,
    RouteLevel,
    RouteRequest,
    RouteStream,
    hookimpl,
)

EXAMPLES, WRONG, HALF_WAY = "examples_are_answered", "wrong_values_are_no_fault", "an_answer_that_fails_half_way"
CAUGHT = {
    "good": (),
    "without-a-summary": ("the_table",),
    "takes-the-models": ("the_table",),
    "open-and-not-declared": ("the_table",),
    "without-an-example": ("every_body_has_an_example",),
    "another-field": (EXAMPLES, HALF_WAY),
    "another-type": (EXAMPLES, HALF_WAY),
    "trusts-its-field": (WRONG,),
    "another-shape": ("broken_bodies_are_refused", "*"),
    "hides-the-reason": ("refusals_of_the_runtime", "*"),
    "swallows-errors": (HALF_WAY,),
    "reads-on": ("a_client_that_leaves",),
    "fails-always": (EXAMPLES, "*"),
}


class Ask(BaseModel):
    model_config = ConfigDict(extra="ignore")

    question: str = Field(min_length=1)
    extra: Any = None
    stream: bool = False


class Told(BaseModel):
    text: str


class Problem(BaseModel):
    model_config = ConfigDict(extra="forbid")

    problem: str


class Good:
    def error_body(self, error: RouteError, request_id: str) -> Any:
        return {"problem": error.message}

    async def ask(self, request: RouteRequest) -> RouteAnswer | RouteStream:
        body: Ask = request.body
        run = await request.runtime.chat(ChatRequest(messages=[{"role": "user", "content": body.question}]))
        events = run.events()
        first = await anext(events)
        if body.stream:
            return RouteStream(
                chunks=self.texts(first, events),
                media_type="text/plain",
                last_words=lambda error: error.message.encode(),
            )
        return RouteAnswer(body={"text": "".join([piece.decode() async for piece in self.texts(first, events)])})

    async def texts(self, first: Any, more: Any) -> AsyncGenerator[bytes, None]:
        batch = first
        async with aclosing(more):
            while batch is not None:
                for event in batch:
                    if isinstance(event, ContentDelta):
                        yield event.text.encode()
                batch = await anext(more, None)

    def route(self) -> Route:
        return Route(
            path="/acme/ask",
            methods=("POST",),
            level=RouteLevel.KEY,
            handler=self.ask,
            summary="An answer.",
            request=Ask,
            response=Told,
            stream=Told,
            stream_type="text/plain",
            generates=True,
            examples=({"question": "Why?"},),
            error_body=self.error_body,
            error=Problem,
        )


class AnotherField(Good):
    async def ask(self, request: RouteRequest) -> RouteAnswer | RouteStream:
        answer = await super().ask(request)
        return RouteAnswer(body={"words": "x"}) if isinstance(answer, RouteAnswer) else answer


class AnotherType(Good):
    async def ask(self, request: RouteRequest) -> RouteAnswer | RouteStream:
        answer = await super().ask(request)
        return RouteAnswer(body=b"x", media_type="text/html") if isinstance(answer, RouteAnswer) else answer


class TrustsItsField(Good):
    async def ask(self, request: RouteRequest) -> RouteAnswer | RouteStream:
        if request.body.extra is not None:
            len(request.body.extra)
        return await super().ask(request)


class AnotherShape(Good):
    def error_body(self, error: RouteError, request_id: str) -> Any:
        return error.body


class HidesTheReason(Good):
    async def ask(self, request: RouteRequest) -> RouteAnswer | RouteStream:
        try:
            return await super().ask(request)
        except RouteError as error:
            raise RouteError(502, "something went wrong") from error


class SwallowsErrors(Good):
    async def texts(self, first: Any, more: Any) -> AsyncGenerator[bytes, None]:
        with suppress(RouteError):
            async with aclosing(super().texts(first, more)) as pieces:
                async for piece in pieces:
                    yield piece


class ReadsOn(Good):
    """In a task of its own, which nobody ends."""

    async def texts(self, first: Any, more: Any) -> AsyncGenerator[bytes, None]:
        pieces: asyncio.Queue[bytes | RouteError | None] = asyncio.Queue(1)

        async def read() -> None:
            try:
                async for piece in super(ReadsOn, self).texts(first, more):
                    await pieces.put(piece)
                await pieces.put(None)
            except RouteError as error:
                await pieces.put(error)

        self.task = asyncio.ensure_future(read())
        while (piece := await pieces.get()) is not None:
            if isinstance(piece, RouteError):
                raise piece
            yield piece


class FailsAlways(Good):
    async def ask(self, request: RouteRequest) -> RouteAnswer | RouteStream:
        raise KeyError("x")


CHANGES: dict[str, Callable[[Route], Route]] = {
    "without-a-summary": lambda route: replace(route, summary=""),
    "takes-the-models": lambda route: replace(route, path="/v1/models/mine"),
    "open-and-not-declared": lambda route: replace(route, level=RouteLevel.OPEN, generates=True),
    "without-an-example": lambda route: replace(route, examples=()),
}


@hookimpl
def jackfield_routes(context: Any) -> Sequence[Route]:
    name = "".join(word.capitalize() for word in context.name.split("-"))
    made = globals().get(name, Good)()
    return [CHANGES.get(context.name, replace)(made.route())]
