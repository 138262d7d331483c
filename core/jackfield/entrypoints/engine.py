"""`Engine`: the offline API. It refuses, generates and streams; it decides nothing.

Inline topology: whichever caller waits turns the runtime, under a lock, so that callers in several threads or coroutines
share one continuous batch.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, overload

from jackfield.config.flags import server_args_from_kwargs
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.answer_stream import AnswerStream, AsyncAnswerStream, final_answer
from jackfield.entrypoints.inline import InlineRuntime
from jackfield.entrypoints.launcher import launch_inline
from jackfield.managers.req_state import ReqState
from jackfield.managers.tokenizer import Tokenizer
from jackfield.managers.tokenizer_manager import GenerateRequest

Prompt = str | Sequence[str]
InputIds = Sequence[int] | Sequence[Sequence[int]]
Sampling = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Engine:
    """A model behind a stack of plugins, in this process.

    Keyword arguments are the fields of `ServerArgs`; the environment (`JACKFIELD_*`) and a stack file (`stack=...`) count
    as they do on the command line. Raises ConfigurationError if any of it cannot be had as asked.

        with Engine() as engine:
            print(engine.generate("Once upon a time", {"max_new_tokens": 20})["text"])
    """

    def __init__(self, **server_args: Any) -> None:
        args, provenance = server_args_from_kwargs(server_args, os.environ)
        self._start(args, provenance)

    @classmethod
    def from_server_args(cls, args: ServerArgs, provenance: Mapping[str, str] | None = None) -> Engine:
        """An engine for arguments that were already read; provenance: field -> where its value came from."""
        engine = cls.__new__(cls)
        engine._start(args, provenance)
        return engine

    def _start(self, args: ServerArgs, provenance: Mapping[str, str] | None) -> None:
        self._runtime = launch_inline(args, provenance)
        self._lock = threading.Lock()
        self._orphans: deque[list[ReqState]] = deque()
        self._pump: asyncio.Future[None] | None = None

    @property
    def server_args(self) -> ServerArgs:
        """The arguments as resolved."""
        return self._runtime.args

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None with `skip_tokenizer_init`."""
        return self._runtime.tokenizer_manager.tokenizer

    @property
    def model_name(self) -> str:
        """`--served-model-name`, or the model's own."""
        return self._runtime.model_name

    @overload
    def generate(
        self,
        prompt: Prompt | None = ...,
        sampling_params: Sampling | None = ...,
        *,
        input_ids: InputIds | None = ...,
        stream: Literal[False] = ...,
        rid: str | Sequence[str] | None = ...,
    ) -> Any: ...

    @overload
    def generate(
        self,
        prompt: Prompt | None = ...,
        sampling_params: Sampling | None = ...,
        *,
        input_ids: InputIds | None = ...,
        stream: Literal[True],
        rid: str | Sequence[str] | None = ...,
    ) -> AnswerStream: ...

    def generate(
        self,
        prompt: Prompt | None = None,
        sampling_params: Sampling | None = None,
        *,
        input_ids: InputIds | None = None,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
    ) -> Any:
        """Complete one prompt, or a batch of them.

        prompt            text or a list of texts; or
        input_ids         token ids or a list of id lists
        sampling_params   a mapping, or one a prompt; the fields are SGLang's
        stream            yield answers as they grow; text and ids are cumulative, and with a batch each has "index"

        Returns one answer {text, output_ids, meta_info} or, for a list, the answers in its order. Raises RequestError
        naming the field for what cannot be done, and for a request that the scheduler refused or that failed.
        """
        request = GenerateRequest(
            prompt=prompt, input_ids=input_ids, sampling_params=sampling_params, stream=stream, rid=rid
        )
        batched = _is_batch(request)
        runtime = self._open_runtime()
        with self._lock:
            states = runtime.tokenizer_manager.submit(request)
        if stream:
            return AnswerStream(
                states,
                batched,
                turn=partial(self._turn, runtime),
                abandon=partial(self._abandon, runtime),
                orphan=self._orphans.append,
            )
        try:
            while not all(state.closed for state in states):
                self._turn(runtime, states)
        except BaseException:
            self._abandon(runtime, states)
            raise
        answers = [final_answer(state) for state in states]
        return answers if batched else answers[0]

    async def async_generate(
        self,
        prompt: Prompt | None = None,
        sampling_params: Sampling | None = None,
        *,
        input_ids: InputIds | None = None,
        stream: bool = False,
        rid: str | Sequence[str] | None = None,
    ) -> Any:
        """As `generate`, for a running event loop, which is never blocked: `await` gives the answer, or with `stream` an
        async iterator of growing answers."""
        request = GenerateRequest(
            prompt=prompt, input_ids=input_ids, sampling_params=sampling_params, stream=stream, rid=rid
        )
        batched = _is_batch(request)
        runtime = self._open_runtime()
        states = await asyncio.to_thread(self._submit, runtime, request)
        if stream:
            return AsyncAnswerStream(
                states,
                batched,
                turn=partial(self._async_turn, runtime),
                abandon=partial(self._abandon, runtime),
                orphan=self._orphans.append,
            )
        try:
            while not all(state.closed for state in states):
                await self._async_turn(runtime, states)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(self._abandon, runtime, states))
            raise
        answers = [final_answer(state) for state in states]
        return answers if batched else answers[0]

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **template_kwargs: Any) -> list[int]:
        """Messages -> the ids of the model's own chat template, with the assistant's turn opened.

        template_kwargs   variables of the template, such as `enable_thinking`

        Raises RequestError if the model has no template or it does not take these messages.
        """
        return self._open_runtime().template_manager.encode(messages, template_kwargs=template_kwargs)

    def flush_cache(self) -> None:
        """Forget all cached prefixes. Raises RuntimeError with the reason while requests are open."""
        runtime = self._open_runtime()
        with self._lock:
            control_id = runtime.tokenizer_manager.flush_cache()
            while (reply := runtime.tokenizer_manager.reply(control_id)) is None:
                runtime.turn()
        if not reply.ok:
            raise RuntimeError(reply.message)

    def get_server_info(self) -> dict[str, Any]:
        """Arguments, the stack with its hash and reasons, and the scheduler's and the KV pool's numbers."""
        runtime = self._open_runtime()
        with self._lock:
            self._abort_orphans(runtime)
            return runtime.server_info()

    def shutdown(self) -> None:
        """End open requests and free the model. A second call does nothing."""
        with self._lock:
            self._runtime.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    # turning the crank

    def _open_runtime(self) -> InlineRuntime:
        if self._runtime.closed:
            raise RuntimeError("the engine was shut down")
        return self._runtime

    def _submit(self, runtime: InlineRuntime, request: GenerateRequest) -> list[ReqState]:
        with self._lock:
            return runtime.tokenizer_manager.submit(request)

    def _turn(self, runtime: InlineRuntime, states: list[ReqState]) -> None:
        with self._lock:
            self._abort_orphans(runtime)
            # Another thread may have turned for us while this one waited for the lock.
            if not all(state.closed for state in states):
                runtime.turn_for_open_requests()

    async def _async_turn(self, runtime: InlineRuntime, states: list[ReqState]) -> None:
        """One turn in a thread, shared by all coroutines that wait: the first to come turns, the others wait for it."""
        pump = self._pump
        if pump is None or pump.done() or pump.get_loop() is not asyncio.get_running_loop():
            pump = asyncio.ensure_future(asyncio.to_thread(self._turn, runtime, states))
            self._pump = pump
        # Shielded: a cancelled waiter must not take the turn away from the others.
        await asyncio.shield(pump)

    def _abort_orphans(self, runtime: InlineRuntime) -> None:
        """End the requests of streams that were collected unread. Needs the lock."""
        while self._orphans:
            for state in self._orphans.popleft():
                runtime.tokenizer_manager.abort(state)

    def _abandon(self, runtime: InlineRuntime, states: list[ReqState]) -> None:
        """End what is still open of these requests, and wait until the scheduler has let go of them."""
        with self._lock:
            if runtime.closed:
                return
            for state in states:
                runtime.tokenizer_manager.abort(state)
            while not all(state.closed for state in states):
                runtime.turn_for_open_requests()


def _is_batch(request: GenerateRequest) -> bool:
    if request.prompt is not None:
        return not isinstance(request.prompt, str)
    return (
        bool(request.input_ids)
        and isinstance(request.input_ids, Sequence)
        and isinstance(request.input_ids[0], Sequence)
    )
