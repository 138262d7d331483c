"""Chats of `Engine`: the same pipeline as the server's routes, without a server. Knows movers and calls, no protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.answer_stream import AnswerStream, AsyncAnswerStream
from jackfield.entrypoints.calls import Call, Mover, submit_async, wait, wait_async
from jackfield.hookspecs.chat import ChatChoice, ChatEvent, ChatRequest, ChatUsage
from jackfield.managers.chat.answers import Answers
from jackfield.managers.chat.parsers import Parsers
from jackfield.managers.chat.pipeline import ChatPipeline, Prepared
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer_manager import TokenizerManager


class ChatReplica(Protocol):
    """What chats need of a replica of any topology."""

    args: ServerArgs
    parsers: Parsers
    template_manager: TemplateManager

    @property
    def tokenizer_manager(self) -> TokenizerManager: ...


def chat_pipeline(replica: ChatReplica) -> ChatPipeline:
    return ChatPipeline(
        templates=replica.template_manager,
        limits=replica.tokenizer_manager.limits,
        args=replica.args,
        grammars=replica.tokenizer_manager.grammars,
        reasoning=replica.parsers.reasoning,
        tool_calls=replica.parsers.tool_calls,
    )


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """choices: in their order; one, unless `n` asked for more."""

    choices: tuple[ChatChoice, ...]
    usage: ChatUsage

    @property
    def text(self) -> str:
        """The first choice's content."""
        return self.choices[0].content


class ChatStream(AnswerStream[ChatEvent]):
    """The events of a chat as they come; what is left of it ends with `close`, or the end of a `with`."""

    def __init__(self, call: Call, answers: Answers) -> None:
        super().__init__(call, lambda states: answers.events(answers.take(states)))
        self._answers = answers

    def usage(self) -> ChatUsage:
        """So far; final once the last event was read."""
        return self._answers.usage()


class AsyncChatStream(AsyncAnswerStream[ChatEvent]):
    """As `ChatStream`, for `async for`."""

    def __init__(self, call: Call, answers: Answers) -> None:
        super().__init__(call, lambda states: answers.events(answers.take(states)))
        self._answers = answers

    def usage(self) -> ChatUsage:
        """So far; final once the last event was read."""
        return self._answers.usage()


def chat(replica: ChatReplica, mover: Mover, request: ChatRequest, rid: str | None) -> ChatAnswer | ChatStream:
    """Raises RequestError naming the field."""
    prepared = chat_pipeline(replica).chat(request, rid=rid)
    call = mover.submit(prepared.request)
    answers = _answers(replica, prepared, call)
    if request.stream:
        return ChatStream(call, answers)
    wait(call)
    return _answer(call, answers)


async def async_chat(
    replica: ChatReplica, mover: Mover, request: ChatRequest, rid: str | None
) -> ChatAnswer | AsyncChatStream:
    """As `chat`, without blocking the event loop."""
    prepared = await asyncio.to_thread(lambda: chat_pipeline(replica).chat(request, rid=rid))
    call = await submit_async(mover, prepared.request)
    answers = _answers(replica, prepared, call)
    if request.stream:
        return AsyncChatStream(call, answers)
    await wait_async(call)
    return _answer(call, answers)


def _answers(replica: ChatReplica, prepared: Prepared, call: Call) -> Answers:
    return Answers(prepared.reading, call.states, replica.tokenizer_manager.tokenizer)


def _answer(call: Call, answers: Answers) -> ChatAnswer:
    choices: Sequence[ChatChoice] = [answers.choice(state) for state in call.states]
    return ChatAnswer(choices=tuple(choices), usage=answers.usage())
