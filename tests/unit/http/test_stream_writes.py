"""Streams of chats: what is there together goes out as one piece, so that a client that has gone costs one write in vain, and
asyncio need not warn of a row of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from jackfield.entrypoints.http.openai.chat import _stream
from jackfield.entrypoints.http.openai.common import Head
from jackfield.entrypoints.http.responses.response import Responding
from jackfield.entrypoints.http.schemas.responses import ResponseBody
from jackfield.entrypoints.http.sse import DONE
from jackfield.hookspecs import ChatEvent, ChatUsage, ChoiceEnded, ContentDelta

WHOLE: tuple[ChatEvent, ...] = (
    *(ContentDelta(index=0, text=f"{i} ") for i in range(9)),
    ChoiceEnded(index=0, reason="length"),
)


class FakeRun:
    """Nine words and the end; `batches` says what is there together."""

    choice_count = 1

    def __init__(self, batches: Sequence[Sequence[ChatEvent]]) -> None:
        self._batches = batches

    async def events(self) -> AsyncGenerator[Sequence[ChatEvent], None]:
        for batch in self._batches:
            yield batch

    def usage(self) -> ChatUsage:
        return ChatUsage(prompt_tokens=1, completion_tokens=9)


BATCHES = pytest.mark.parametrize(
    ("batches", "writes"), [([WHOLE], 1), ([WHOLE[:1], (), WHOLE[1:5], WHOLE[5:]], 3)], ids=["at once", "in three"]
)


@BATCHES
async def test_a_chats_chunks_that_are_there_together_are_one_write(batches: Any, writes: int) -> None:
    run: Any = FakeRun(batches)
    events = run.events()
    head = Head(id="x", created=0, model="m", fingerprint="f")
    told = [piece async for piece in _stream(head, run, False, False, await anext(events), events)]
    assert len(told) == writes + 1  # the end may be told later than the last token
    text = b"".join(told)
    assert text.endswith(DONE)
    assert text.count(b"data: ") == 1 + len(WHOLE) + 1
    assert text.index(b'"role"') < text.index(b"0 ") < text.index(b"8 ") < text.index(b'"length"')


@BATCHES
async def test_a_responses_events_that_are_there_together_are_one_write(batches: Any, writes: int) -> None:
    made = Responding("r", "m", ResponseBody(input="x"), stored=False, keep=lambda told: True)
    made.run = FakeRun(batches)  # type: ignore[assignment]
    told = [piece async for piece in made.events()]
    assert len(told) == writes
    assert b"".join(told).count(b'"type":"response.output_text.delta"') == 9
    assert told[-1].count(b"event: response.incomplete") == 1
