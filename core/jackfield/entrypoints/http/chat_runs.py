"""Chats and plain prompts for routes of any protocol: checked, handed over, and read as events. Knows no protocol.

A run's errors are the server's own, with the client's names of fields, so that a route need not know the runtime's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager

from jackfield.entrypoints.calls import Call
from jackfield.entrypoints.engine_chat import chat_pipeline
from jackfield.entrypoints.http.errors import api_error
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.entrypoints.http.service import Service
from jackfield.hookspecs.chat import ChatChoice, ChatEvent, ChatRequest, ChatUsage, TextRequest
from jackfield.managers.chat.answers import Answers
from jackfield.managers.chat.pipeline import ChatPipeline, Prepared
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.generate_request import GenerateRequest


class Run:
    """The `ChatRun` of the server."""

    def __init__(self, service: Service, call: Call, answers: Answers, names: Mapping[str, str]) -> None:
        self._service = service
        self._call = call
        self._answers = answers
        self._names = names
        self.prompt_tokens = sum(state.prompt_tokens for state in call.states if state.choice == 0)
        self.choice_count = len(call.states)

    async def events(self) -> AsyncGenerator[Sequence[ChatEvent], None]:
        with _clients_words(self._names):
            async with aclosing(self._service.news(self._call, self._answers.take)) as news:
                async for batch in news:
                    # Without events too: an answer's head may go out with the first token, whatever is held back.
                    yield self._answers.events(batch)

    async def choices(self) -> Sequence[ChatChoice]:
        with _clients_words(self._names):
            return await self._service.answers(self._call, self._answers.choice)

    def usage(self) -> ChatUsage:
        return self._answers.usage()


class ChatRuns:
    """For one request of a client."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._service = exchange.service

    async def chat(self, request: ChatRequest, *, rid: str | None = None) -> Run:
        """rid: the id by which /abort_request knows it; with n above 1 each choice has it with its number. Raises ApiError
        naming the client's field."""
        label = self._exchange.label
        return await self._run(lambda pipeline: pipeline.chat(request, rid=rid, call_id=label), request.names)

    async def complete(self, request: TextRequest, *, rid: str | None = None) -> Run:
        """As `chat`, for a plain prompt."""
        label = self._exchange.label
        return await self._run(lambda pipeline: pipeline.text(request, rid=rid, call_id=label), request.names)

    async def prompt_ids(self, request: ChatRequest, *, add_generation_prompt: bool = True) -> list[int]:
        """The prompt that a chat would send. Raises ApiError as `chat`."""
        pipeline = self._pipeline()
        with _clients_words({"input_ids": "messages", **request.names}):
            return await self._service.in_thread(
                lambda: pipeline.prompt_ids(request, add_generation_prompt=add_generation_prompt)
            )

    def _pipeline(self) -> ChatPipeline:
        return chat_pipeline(self._service.serving.replica)

    async def _run(self, prepare: Callable[[ChatPipeline], Prepared], names: Mapping[str, str]) -> Run:
        pipeline = self._pipeline()
        prepared: list[Prepared] = []
        known = dict(names)

        def make() -> GenerateRequest:
            prepared.append(prepare(pipeline))
            known.update(prepared[0].names)
            return prepared[0].request

        with _clients_words(known):
            call = await self._exchange.submit(make)
        tokenizer = self._service.serving.replica.tokenizer_manager.tokenizer
        return Run(self._service, call, Answers(prepared[0].reading, call.states, tokenizer), known)


@contextmanager
def _clients_words(names: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except RequestError as error:
        raise api_error(error, names) from error
