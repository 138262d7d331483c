"""`/v1/chat/completions`: OpenAI's chat over the neutral one. What its fields mean is in `docs/openai.md`.

Policies: contents of messages are text, never control tokens; the role `developer` is `system`; a last message of the assistant
is followed by a new turn unless `continue_final_message` is true; without a limit the answer may fill the context.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from jackfield.entrypoints.http.chat_runs import ChatRuns, Run
from jackfield.entrypoints.http.exchange import Exchange, Reply, check_model, json_response
from jackfield.entrypoints.http.openai.chat_answer import choice_object, chunk_choices, first_choice, usage_object
from jackfield.entrypoints.http.openai.chat_request import chat_request
from jackfield.entrypoints.http.openai.common import Head, check_stream_options, continuous_usage
from jackfield.entrypoints.http.schemas.openai_chat import ChatBody
from jackfield.entrypoints.http.sse import DONE, ChoiceEvents, EventStream, event
from jackfield.hookspecs.chat import ChatEvent

KIND, CHUNK = "chat.completion", "chat.completion.chunk"


async def chat_completions(exchange: Exchange) -> Reply:
    body: ChatBody = exchange.body
    check_model(exchange, body.model)
    with_usage = check_stream_options(body)
    head = Head.new(exchange, "chatcmpl")
    request = chat_request(exchange, body)
    run = await ChatRuns(exchange).chat(request, rid=head.id)
    if body.stream:
        events = run.events()
        first = await anext(events)
        return EventStream(_stream(head, run, with_usage, continuous_usage(body), first, events))
    choices = [choice_object(choice) for choice in await run.choices()]
    return json_response(head.object(KIND, choices, usage_object(run.usage())))


async def _stream(
    head: Head,
    run: Run,
    with_usage: bool,
    continuous: bool,
    first: Sequence[ChatEvent],
    events: AsyncGenerator[Sequence[ChatEvent], None],
) -> AsyncGenerator[bytes, None]:
    around = ChoiceEvents(head.object(CHUNK, [], None))

    def chunk(choice: dict[str, Any]) -> bytes:
        if continuous:
            return event(head.object(CHUNK, [choice], usage_object(run.usage())))
        return around.event(choice)

    try:
        # What is there together goes out together: a client that has gone costs no row of writes in vain.
        chunks = [chunk(first_choice(i)) for i in range(run.choice_count)]
        batch: Sequence[ChatEvent] | None = first
        while batch is not None:
            chunks += map(chunk, chunk_choices(batch))
            if chunks:
                yield b"".join(chunks)
            chunks = []
            batch = await anext(events, None)
        if with_usage:
            chunks.append(event(head.object(CHUNK, [], usage_object(run.usage()))))
        yield b"".join([*chunks, DONE])
    finally:
        await events.aclose()
