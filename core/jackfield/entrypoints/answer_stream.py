"""What `Engine` returns for a stream: an iterator over what comes of a call, which ends its requests when nobody reads on.

Classes and not generators, because a generator that was never started runs no `finally`, and one that is collected runs it
wherever the collector happens to be, perhaps under the very lock that it needs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from jackfield.entrypoints.calls import Call
from jackfield.managers.requests.req_state import ReqState

T = TypeVar("T")


class _Stream(Generic[T]):
    """A call, and what was made of it but not yet read.

    news   what is new in the states, while nobody writes them; it sets `told` on each whose end it has reported
    """

    def __init__(self, call: Call, news: Callable[[Sequence[ReqState]], Sequence[T]]) -> None:
        self._call = call
        self._news = news
        self._ready: deque[T] = deque()
        self._ended = False

    def __del__(self) -> None:
        if not self._ended:
            self._call.orphan()

    def _next_ready(self) -> T | None:
        """What to hand out now. Raises RequestError for a request that failed; None: nothing new."""
        if not self._ready:
            self._ready.extend(self._call.read(self._news))
        return self._ready.popleft() if self._ready else None

    @property
    def _exhausted(self) -> bool:
        return not self._ready and all(state.told for state in self._call.states)


class AnswerStream(_Stream[T]):
    """Iterate over it; `close` (or the end of a `with`) ends the requests early."""

    def __iter__(self) -> AnswerStream[T]:
        return self

    def __next__(self) -> T:
        try:
            while not self._ended:
                if (answer := self._next_ready()) is not None:
                    return answer
                if self._exhausted:
                    self.close()
                else:
                    self._call.wait()
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def close(self) -> None:
        """End what is still open. A second call does nothing."""
        if not self._ended:
            self._ended = True
            self._call.end()

    def __enter__(self) -> AnswerStream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncAnswerStream(_Stream[T]):
    """As `AnswerStream`, for `async for`; `aclose` ends the requests early."""

    def __aiter__(self) -> AsyncAnswerStream[T]:
        return self

    async def __anext__(self) -> T:
        try:
            while not self._ended:
                if (answer := self._next_ready()) is not None:
                    return answer
                if self._exhausted:
                    await self.aclose()
                else:
                    await self._call.wait_async()
        except BaseException:
            await self.aclose()
            raise
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End what is still open. A second call does nothing."""
        if not self._ended:
            self._ended = True
            await asyncio.shield(asyncio.to_thread(self._call.end))

    async def __aenter__(self) -> AsyncAnswerStream[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
