"""What every route works with: the replica, its mover, the threads for slow work, and the calls that are under way.

It submits and follows calls for coroutines; it knows no route, no shape of an answer and no HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.calls import Call, Mover, raise_first_failure
from jackfield.entrypoints.driver import DrivenRuntime
from jackfield.entrypoints.http.errors import unavailable
from jackfield.entrypoints.http.guards.auth import Hosts, Keys
from jackfield.entrypoints.http.guards.cors import Cors
from jackfield.entrypoints.http.responses.store import ResponseStore
from jackfield.entrypoints.http.status import Phase, ServerStatus
from jackfield.entrypoints.monitor import Monitor
from jackfield.entrypoints.plugin_routes import PluginRoutes
from jackfield.entrypoints.server_info import Replica
from jackfield.hookspecs import ModelCard
from jackfield.ipc.messages import ControlReply
from jackfield.managers.chat.parsers import Parsers
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer_manager import TokenizerManager

T = TypeVar("T")

TOKENIZER_THREADS = 4
"""Tokenizing and rendering at once; the tokenizer spreads a batch over threads of its own."""

CONTROL_THREADS = 4
METRICS_THREADS = 1
CONTROL_SECONDS = 30.0
"""How long a control request may take: a step of the model may be under way, and it is answered between two."""


class ServedReplica(Replica, DrivenRuntime, Protocol):
    """A replica of any topology, as the server uses it."""

    model_name: str
    template_manager: TemplateManager
    parsers: Parsers
    monitor: Monitor
    card: ModelCard
    routes: tuple[PluginRoutes, ...]


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A replica that is up. created: when, in seconds since the epoch."""

    replica: ServedReplica
    mover: Mover
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def fingerprint(self) -> str:
        """What OpenAI calls system_fingerprint: answers of the same stack and model come from the same code."""
        return f"jf-{self.replica.stack_hash[:12]}"


class Service:
    """args     as the user gave them, for the ceilings; the replica has the resolved ones
    open_calls  generation requests under way
    responses   those that are kept; None: none is
    """

    def __init__(self, args: ServerArgs) -> None:
        self.args = args
        self.keys = Keys(args.api_key, args.admin_api_key)
        self.hosts = Hosts(args)
        self.cors = Cors(args.cors_origin)
        self.status = ServerStatus()
        self.open_calls = 0
        self.responses: ResponseStore | None = None
        if args.enable_response_store:
            self.responses = ResponseStore(args.response_store_entries, args.response_store_bytes)
        self.on_stop: Callable[[BaseException], None] | None = None
        self._serving: Serving | None = None
        self._pool = ThreadPoolExecutor(TOKENIZER_THREADS, "jackfield-tokenize")
        # Of its own, so that a flood of long prompts does not keep an operator from asking how things are.
        self._control_pool = ThreadPoolExecutor(CONTROL_THREADS, "jackfield-control")
        # Metrics are wanted most when the scheduler does not answer, and everybody who asks it waits.
        self._metrics_pool = ThreadPoolExecutor(METRICS_THREADS, "jackfield-metrics")

    def up(self, serving: Serving) -> None:
        self._serving = serving
        self.status.checks.append(serving.replica.monitor.health.stalled)
        self.status.up()

    def stop(self, error: BaseException) -> None:
        """The server cannot go on; whoever runs it has said what is to be done then (`on_stop`)."""
        if self.on_stop is not None:
            self.on_stop(error)

    @property
    def is_up(self) -> bool:
        """Whether there is a replica."""
        return self._serving is not None

    @property
    def serving(self) -> Serving:
        """Raises ApiError 503 while there is none."""
        if self._serving is None:
            raise unavailable("the server is starting", "starting")
        return self._serving

    @property
    def monitor(self) -> Monitor | None:
        """None while there is no replica."""
        return None if self._serving is None else self._serving.replica.monitor

    def enter(self) -> None:
        """Count a generation request in, or refuse it with 503."""
        if not self.status.accepts:
            code = {Phase.STARTING: "starting", Phase.DRAINING: "draining"}.get(self.status.phase, "failed")
            raise unavailable(f"{self.status.problem}: no request is taken", code)
        if self.open_calls >= self.args.max_concurrent_requests:
            raise unavailable(
                f"the server has {self.open_calls} requests at once, and takes no more (--max-concurrent-requests)",
                "too_many_requests",
            )
        self.open_calls += 1

    def leave(self) -> None:
        self.open_calls -= 1

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Tokenizing, rendering: what would block the event loop, a few at once."""
        return await asyncio.wrap_future(self._pool.submit(work))

    async def control(self, work: Callable[[], T]) -> T:
        """What waits for the scheduler."""
        return await asyncio.wrap_future(self._control_pool.submit(work))

    async def told(self, work: Callable[[], T]) -> T:
        """What takes its time and waits for nobody."""
        return await asyncio.wrap_future(self._metrics_pool.submit(work))

    async def ask(self, send: Callable[[TokenizerManager], int], more: float = 0.0) -> ControlReply:
        """The scheduler's answer to a control request. Raises ApiError 503 if none comes in time. more: seconds that the
        request itself may take."""
        mover, seconds = self.serving.mover, CONTROL_SECONDS + more
        try:
            return await self.control(lambda: mover.control(send, seconds))
        except TimeoutError:
            raise unavailable(f"the scheduler did not answer within {seconds:g} s", "scheduler_busy") from None

    async def submit(self, make: Callable[[], AnyRequest]) -> Call:
        """Make the request and hand it over, on a thread. A caller that is cancelled leaves nothing behind."""
        mover = self.serving.mover
        job = self._pool.submit(lambda: mover.submit(make()))
        submitted = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(submitted)
        except asyncio.CancelledError:
            if not job.cancel():
                job.add_done_callback(_orphan)
                # A refusal has nobody left to tell, and asyncio would log it as an error that was forgotten.
                submitted.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def answers(self, call: Call, make: Callable[[ReqState], T]) -> list[T]:
        """All answers, complete. Raises RequestError, ReplicaFailed; a caller that is cancelled ends the call.

        make   what is told of an answer that did not fail
        """
        try:
            while not call.closed:
                await call.wait_async()
                raise_first_failure(call)
            raise_first_failure(call)
            # Nobody writes them any more. Log-probabilities may be very many, and others' streams must not stand meanwhile.
            states = call.states
            if any(state.logprobs is not None for state in states):
                return await self.in_thread(lambda: [make(state) for state in states])
            return [make(state) for state in states]
        finally:
            if not call.closed:
                call.orphan()

    async def news(self, call: Call, reader: Callable[[Sequence[ReqState]], list[T]]) -> AsyncGenerator[list[T], None]:
        """What `reader` makes of the states whenever something came, until all are told. Errors and ends as `answers`.

        reader   sets `told` on each state whose end it has reported
        """
        try:
            while True:
                fresh, over = call.read(lambda states: (reader(states), all(state.told for state in states)))
                if fresh:
                    yield fresh
                if over:
                    return
                await call.wait_async()
        finally:
            if not call.closed:
                call.orphan()

    def abort_all(self, message: str | None = None) -> int:
        """Ask for the end of every open request; says how many there are. Does not wait."""
        return self.abort(lambda manager: list(manager.rid_to_state.values()), message)

    def abort(self, choose: Callable[[TokenizerManager], list[ReqState]], message: str | None = None) -> int:
        if self._serving is None:
            return 0
        replica = self._serving.replica
        count = replica.tokenizer_manager.abort_where(choose, message)
        replica.wake()
        return count

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._control_pool.shutdown(wait=False, cancel_futures=True)
        self._metrics_pool.shutdown(wait=False, cancel_futures=True)


def _orphan(job: Future[Any]) -> None:
    if not job.cancelled() and job.exception() is None:
        job.result().orphan()
