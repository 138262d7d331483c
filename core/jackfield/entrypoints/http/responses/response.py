"""One of OpenAI's responses, from beginning to end: the object at each stage, and its stream. Knows no route and no store."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from jackfield.entrypoints.http.chat_runs import Run
from jackfield.entrypoints.http.errors import ApiError, api_error
from jackfield.entrypoints.http.responses.output_items import Event, ResponseOutput
from jackfield.entrypoints.http.schemas.responses import ResponseBody
from jackfield.hookspecs.chat import ChatUsage

_encode = msgspec.json.Encoder().encode


class Responding:
    """A response under way.

    name      its id; model: the served model's
    stored    whether it is kept
    keep      told of the object when it has ended, before anybody else is; False: it could not be kept
    run       set before anything else is asked of it
    """

    run: Run

    def __init__(
        self, name: str, model: str, body: ResponseBody, *, stored: bool, keep: Callable[[dict[str, Any]], bool]
    ) -> None:
        self._output = ResponseOutput()
        self._keep = keep
        self._ended = False
        self.object = _beginning(name, model, body, stored)

    async def finish(self) -> dict[str, Any]:
        """The complete object. Raises ApiError for a request that failed."""
        async for batch in self.run.events():
            for _ in self._output.take(batch):
                pass
        return self._complete()

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The stream. Its first event is made when the first token is there. A failure becomes its last event."""
        number = 0

        def told(event: Event) -> bytes:
            nonlocal number
            text = b"event: %s\ndata: %s\n\n" % (
                event["type"].encode(),
                _encode({"type": event["type"], "sequence_number": number, **event}),
            )
            number += 1
            return text

        run = self.run.events()
        try:
            batch = await anext(run)
            # What is there together goes out together.
            events = [
                told({"type": "response.created", "response": self.object}),
                told({"type": "response.in_progress", "response": self.object}),
            ]
            try:
                while True:
                    for event in self._output.take(batch):
                        events.append(told(event))
                    if self._output.ended is not None:
                        break
                    if events:
                        yield b"".join(events)
                    events = []
                    batch = await anext(run)
            except Exception as error:
                events.append(told({"type": "response.failed", "response": self.failed(api_error(error))}))
                yield b"".join(events)
                return
            complete = self._complete()
            events.append(told({"type": f"response.{_event_word(complete['status'])}", "response": complete}))
            yield b"".join(events)
        finally:
            await run.aclose()

    def _complete(self) -> dict[str, Any]:
        end = self._output.ended
        assert end is not None, "a run tells how each choice ended"
        if end.reason == "abort":
            return self._end(status="cancelled")
        if end.reason == "length":
            return self._end(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
        return self._end(status="completed")

    def failed(self, error: ApiError) -> dict[str, Any]:
        return self._end(status="failed", error={"code": error.code or "server_error", "message": error.message})

    def cancelled(self) -> dict[str, Any]:
        return self._end(status="cancelled")

    def _end(self, **fields: Any) -> dict[str, Any]:
        if not self._ended:
            self._ended = True
            usage = _usage(self.run.usage())
            self.object = {
                **self.object,
                **fields,
                "output": [dict(item) for item in self._output.items],
                "usage": usage,
            }
            if self.object["store"] and not self._keep(self.object):
                self.object["store"] = False
        return self.object


def _event_word(status: str) -> str:
    return status if status in ("completed", "incomplete") else "failed"


def _usage(used: ChatUsage) -> dict[str, Any]:
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens},
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.prompt_tokens + used.completion_tokens,
    }


def _beginning(name: str, model: str, body: ResponseBody, stored: bool) -> dict[str, Any]:
    chosen = body.text.format if body.text is not None and body.text.format is not None else {"type": "text"}
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": bool(body.background),
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort, "summary": None},
        "store": stored,
        "temperature": body.temperature,
        "text": {"format": chosen},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": body.tools or [],
        "top_p": body.top_p,
        "truncation": "disabled",
        "usage": None,
    }
