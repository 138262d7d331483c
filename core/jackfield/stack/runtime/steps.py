"""What a plugin's coroutine costs: the time in which it held the event loop, not the time for which it waited.

A single step that takes longer than the budget is an overrun: all streams of the server stood still meanwhile. Knows no routes.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

from jackfield.stack.runtime.metering import Meter

T = TypeVar("T")


class Steps(Generic[T]):
    """An awaitable that runs the coroutine and books it, once, under the plugin's method.

    expected   exceptions with which it answers, which are none of its faults
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        meter: Meter,
        plugin: str,
        method: str,
        expected: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._work = work
        self._meter = meter
        self._plugin = plugin
        self._method = method
        self._expected = expected

    def __await__(self) -> Generator[Any, Any, T]:
        cost, timer, budget = self._meter.cost(self._plugin, self._method), self._meter.timer, self._meter.budget
        cost.calls += 1
        step: Any = self._work.send
        given: Any = None
        while True:
            began = timer()
            try:
                waits_for = step(given)
            except StopIteration as end:
                result: T = end.value
                return result
            except BaseException as error:
                if not isinstance(error, self._expected):
                    cost.exceptions += 1
                raise
            finally:
                spent = timer() - began
                cost.seconds += spent
                if spent > budget:
                    self._meter.overrun(self._plugin, self._method, spent)
            try:
                given = yield waits_for
                step = self._work.send
            except BaseException as error:
                # A cancellation, or the end of whoever waits: it is the coroutine's to answer.
                step, given = self._work.throw, error
