"""`hookspecs.Runtime` over the server's service: what the routes of every protocol may use, the core's not excepted.

Errors of the runtime become RouteErrors here, so that a plugin, which knows the contract only, can tell and pass them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from jackfield import __version__
from jackfield.entrypoints.http.chat_runs import ChatRuns
from jackfield.entrypoints.http.errors import ApiError, api_error
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.hookspecs import ChatRequest, ChatRun, ModelCard, TextRequest
from jackfield.managers.errors import RequestError
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.stack.report import stack_report

T = TypeVar("T")


class ServedRuntime:
    """For one request."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._service = exchange.service

    @property
    def model(self) -> ModelCard:
        serving = self._service.serving
        return replace(serving.replica.card, created=serving.created)

    @property
    def version(self) -> str:
        return __version__

    @property
    def problem(self) -> str | None:
        return self._service.status.problem

    def stack(self) -> Mapping[str, Any]:
        epoch, stack, digest = self._service.serving.replica.stacks.now
        return stack_report(stack, stack_hash=digest, epoch=epoch)

    async def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        tokenizer = self._tokenizer()
        return await self._in_thread(
            lambda: tokenizer.encode(text, add_special_tokens=add_special_tokens, param="text")
        )

    async def detokenize(self, ids: Sequence[int]) -> str:
        tokenizer, size = self._tokenizer(), self.model.vocab_size
        for token in ids:
            if not 0 <= token < size:
                raise ApiError(400, f"{token} is no token id: ids are 0 to {size - 1}", code="invalid_value")
        return await self._in_thread(lambda: tokenizer.decode(list(ids), skip_special_tokens=False))

    async def chat(self, request: ChatRequest) -> ChatRun:
        return await self._runs().chat(request)

    async def complete(self, request: TextRequest) -> ChatRun:
        return await self._runs().complete(request)

    async def count_tokens(self, request: ChatRequest) -> int:
        return len(await self._runs().prompt_ids(request))

    def _runs(self) -> ChatRuns:
        route = self._exchange.route
        if not route.generates:
            # Nothing would bound it, drain it, or end it with its client.
            raise RuntimeError(f"route {route.path} asks for a generation and is not declared with generates=True")
        return ChatRuns(self._exchange)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._service.in_thread(work)
        except RequestError as error:
            raise api_error(error) from error

    def _tokenizer(self) -> Tokenizer:
        tokenizer = self._service.serving.replica.tokenizer_manager.tokenizer
        if tokenizer is None:
            raise ApiError(400, "this run has no tokenizer (--skip-tokenizer-init)", code="not_supported")
        return tokenizer
