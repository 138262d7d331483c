"""What `Engine.generate(stream=True)` returns: an iterator of growing answers that ends its requests when nobody reads on.

Classes and not generators, because a generator that was never started runs no `finally`, and one that is collected runs it
wherever the collector happens to be, perhaps under the very lock that it needs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jackfield.managers.errors import RequestError
from jackfield.managers.req_state import ReqState

Answer = dict[str, Any]


class _Stream:
    """The states of one call and the answers that were made of them but not yet read."""

    def __init__(self, states: list[ReqState], batched: bool, orphan: Callable[[list[ReqState]], None]) -> None:
        self._states = states
        self._batched = batched
        self._orphan = orphan
        self._ready: deque[Answer] = deque()
        self._ended = False

    def __del__(self) -> None:
        # The collector may be anywhere: only a note is left, which the engine's next turn reads.
        if not self._ended:
            self._orphan(self._states)

    def _next_ready(self) -> Answer | None:
        """An answer to hand out now. Raises RequestError for a request that failed; None: nothing new."""
        if not self._ready:
            self._ready.extend(news(self._states, self._batched))
        return self._ready.popleft() if self._ready else None

    @property
    def _exhausted(self) -> bool:
        return not self._ready and all(state.told for state in self._states)


class AnswerStream(_Stream):
    """Iterate over it; `close` (or the end of a `with`) ends the requests early."""

    def __init__(
        self,
        states: list[ReqState],
        batched: bool,
        *,
        turn: Callable[[list[ReqState]], None],
        abandon: Callable[[list[ReqState]], None],
        orphan: Callable[[list[ReqState]], None],
    ) -> None:
        super().__init__(states, batched, orphan)
        self._turn = turn
        self._abandon = abandon

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> Answer:
        if self._ended:
            raise StopIteration
        try:
            while (answer := self._next_ready()) is None:
                if self._exhausted:
                    self.close()
                    raise StopIteration
                self._turn(self._states)
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        return answer

    def close(self) -> None:
        """End what is still open. A second call does nothing."""
        if not self._ended:
            self._ended = True
            self._abandon(self._states)

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAnswerStream(_Stream):
    """As `AnswerStream`, for `async for`; `aclose` ends the requests early."""

    def __init__(
        self,
        states: list[ReqState],
        batched: bool,
        *,
        turn: Callable[[list[ReqState]], Awaitable[None]],
        abandon: Callable[[list[ReqState]], None],
        orphan: Callable[[list[ReqState]], None],
    ) -> None:
        super().__init__(states, batched, orphan)
        self._turn = turn
        self._abandon = abandon

    def __aiter__(self) -> AsyncAnswerStream:
        return self

    async def __anext__(self) -> Answer:
        if self._ended:
            raise StopAsyncIteration
        try:
            while (answer := self._next_ready()) is None:
                if self._exhausted:
                    await self.aclose()
                    raise StopAsyncIteration
                await self._turn(self._states)
        except StopAsyncIteration:
            raise
        except BaseException:
            await self.aclose()
            raise
        return answer

    async def aclose(self) -> None:
        """End what is still open. A second call does nothing."""
        if not self._ended:
            self._ended = True
            await asyncio.shield(asyncio.to_thread(self._abandon, self._states))

    async def __aenter__(self) -> AsyncAnswerStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def final_answer(state: ReqState) -> Answer:
    """The answer so far. Raises RequestError for a request that ended in an error."""
    finish = state.finish
    if finish is not None and finish.type == "abort" and finish.status_code is not None:
        raise RequestError(finish.message or "the request failed", status_code=finish.status_code)
    return state.answer()


def news(states: Sequence[ReqState], batched: bool) -> list[Answer]:
    """One answer for each request of which something new is known."""
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
