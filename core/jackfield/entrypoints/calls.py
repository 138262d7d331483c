"""One call of the API while it is under way, and whoever moves the replica that answers it.

Two movers exist: `Crank` (the caller who waits turns the runtime) and `Driver` (a thread of its own does). The engine and
the HTTP routes know only what stands here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from jackfield.ipc.messages import ControlReply
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.requests.untold import end_error
from jackfield.managers.tokenizer_manager import TokenizerManager

Answer = dict[str, Any]


class ReplicaFailed(RuntimeError):
    """The replica ended while somebody waited for it; the text says why."""


class ShutDown(RuntimeError):
    """The replica was ended in order, by its owner, while somebody wanted something of it."""


class Call(Protocol):
    """states    one a prompt, in order. Read what changes in them through `news` or `read`: another thread writes it."""

    states: list[ReqState]

    @property
    def closed(self) -> bool:
        """True when the scheduler holds nothing of any of them; then nothing changes any more."""
        ...

    def wait(self) -> None:
        """Block until there may be news. Raises ReplicaFailed."""
        ...

    async def wait_async(self) -> None:
        """As `wait`, without blocking the event loop. One coroutine at a time."""
        ...

    def read(self, reader: Callable[[Sequence[ReqState]], Any]) -> Any:
        """Call `reader` with the states while nobody writes them."""
        ...

    def end(self) -> None:
        """End what is still open, and wait until the scheduler has let go of it. Safe to call at any time, twice too."""
        ...

    def orphan(self) -> None:
        """As `end`, without waiting and from anywhere, a garbage collector's finalizer included."""
        ...


MAX_FLUSH_SECONDS = 600.0
"""The longest for which a flush of the cache may wait for an idle scheduler."""


class Mover(Protocol):
    def submit(self, request: AnyRequest) -> Call:
        """Check, tokenize and hand over. Raises RequestError, ReplicaFailed."""
        ...

    def control(self, send: Callable[[TokenizerManager], int], timeout: float | None = None) -> ControlReply:
        """Send a control request and wait for its answer. Raises TimeoutError, ReplicaFailed."""
        ...

    def stop(self) -> None:
        """End the replica. A second call does nothing."""
        ...


async def submit_async(mover: Mover, request: AnyRequest) -> Call:
    """`submit` on a thread. A caller that is cancelled meanwhile leaves no request behind: nobody would read its answer."""
    submitting = asyncio.ensure_future(asyncio.to_thread(mover.submit, request))
    try:
        return await asyncio.shield(submitting)
    except asyncio.CancelledError:
        submitting.add_done_callback(_orphan)
        raise


def _orphan(submitting: asyncio.Future[Call]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().orphan()


def final_answer(state: ReqState) -> Answer:
    """The answer so far. Raises RequestError for a request that ended in an error."""
    if (error := end_error(state)) is not None:
        raise error
    return state.answer()


def raise_unless_complete(state: ReqState) -> None:
    """Raises RequestError for a request that has no answer to speak of: one that failed, or that was aborted. Of text there is
    what came until then; a vector is there or not."""
    final_answer(state)
    if state.finish is not None and state.finish.type == "abort":
        raise RequestError(state.finish.message or "the request was aborted", status_code=499, code="aborted")


def raise_first_failure(call: Call) -> None:
    """Raises RequestError as soon as one request of the call has ended in an error: nobody will read the others."""
    failed = call.read(lambda states: next((state for state in states if state.failed), None))
    if failed is not None:
        final_answer(failed)


def wait(call: Call) -> None:
    """Until it is over. Raises RequestError as soon as one of its requests failed; then, and if the caller is interrupted,
    nothing of it is left open."""
    try:
        while not call.closed:
            call.wait()
            raise_first_failure(call)
        raise_first_failure(call)
    except BaseException:
        call.end()
        raise


async def wait_async(call: Call) -> None:
    """As `wait`, without blocking the event loop."""
    try:
        while not call.closed:
            await call.wait_async()
            raise_first_failure(call)
        raise_first_failure(call)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(call.end))
        raise


def news(states: Sequence[ReqState], batched: bool) -> list[Answer]:
    """One answer for each request of which something new is known. Raises RequestError as `final_answer`."""
    answers = []
    for state in states:
        # The end is told with the scheduler's last word, so that the last answer has all of its numbers.
        if not state.has_news or (state.finish is not None and not state.closed):
            continue
        state.told = state.finish is not None
        answer = final_answer(state)
        if batched:
            answer["index"] = state.index
        answers.append(answer)
    return answers
