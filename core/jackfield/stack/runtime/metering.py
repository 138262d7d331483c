"""What the calls of plugins cost: their methods are wrapped once, where a process is wired, and count and time themselves.

Of a call that a plugin makes of its own methods nothing is known beyond the sum. Knows no kind but by the table of methods;
what runs once a layer is not in it.
"""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NoReturn, ParamSpec, TypeVar

from jackfield.stack.runtime.faults import blame, ready_for

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Costs = dict[str, dict[str, dict[str, float]]]
"""Plugin "kind.instance" -> method or hook -> {calls, seconds, exceptions, overruns}."""

METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "schedule_policy": ("start", "budget", "order", "take", "victims", "observe"),
        "cache": (
            *("peek", "acquire", "commit", "release", "evict", "slide", "poll", "forest"),
            *("take_evicted", "take_events", "reset"),
        ),
        "attention": ("plan", "refresh"),
        "worker": ("launch", "sample", "control"),
        "gate": ("enter", "poll", "cancel"),
        "grammar": ("check", "load"),
        "kv_tier": ("has", "get", "put", "clear"),
        "logits_processor": ("opened", "closed", "tokens", "apply"),
        "routes": ("handle", "stream"),
        "metrics": ("record", "expose"),
    }
)
"""What is metered of a plugin's object, by kind. Of observers, their lifecycle hooks; of
routes, their handlers and streams (see `steps`); of parsers, what a guard calls; of grammars, also `fill` and `accept` of what
they make. `sizes` of a cache only reads numbers."""

_NAMED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "attention": ("attend", "plan_graph", "in_graph"),
        "gate": ("close",),
        "kv_tier": ("use", "close"),
        "metrics": ("declare", "close"),
        "worker": ("close",),
    }
)
"""What is called too often to be metered, or once, and whose errors say all the same whose they are."""

_WITHIN = "_jackfield_metered"
"""The attribute of a wrapped function that is the function itself."""

SECONDS_BETWEEN_LINES = 60.0
"""Of one method that overruns its budget again and again."""


class Rounds:
    """Calls of several plugins in a row, which are counted together."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Cost:
    """One method of one plugin; its calls come from one thread at a time. rounds: in each of them it is called once more."""

    __slots__ = ("calls", "exceptions", "overruns", "rounds", "said_at", "seconds", "told")

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.exceptions = 0
        self.overruns = 0
        self.rounds: Rounds | None = None
        self.told = 0
        self.said_at = -math.inf

    @property
    def all_calls(self) -> int:
        return self.calls if self.rounds is None else self.calls + self.rounds.count

    def join(self, rounds: Rounds | None) -> None:
        """From now on these, or none."""
        self.calls = self.all_calls
        self.rounds = rounds
        if rounds is not None:
            self.calls -= rounds.count

    def forget(self) -> None:
        """Count from here on."""
        self.calls = 0 if self.rounds is None else -self.rounds.count
        self.seconds, self.exceptions, self.overruns, self.told = 0.0, 0, 0, 0

    def as_data(self) -> dict[str, float]:
        return {
            "calls": float(self.all_calls),
            "seconds": self.seconds,
            "exceptions": float(self.exceptions),
            "overruns": float(self.overruns),
        }


class Meter:
    """One a process.

    budget   seconds that one call may take; a longer one counts as an overrun, and is logged at most once a minute for each
             method. None: there is no limit
    """

    def __init__(self, budget: float | None = None, timer: Callable[[], float] = time.perf_counter) -> None:
        self.budget = math.inf if budget is None else budget
        self.timer = timer
        self._costs: dict[str, dict[str, Cost]] = {}

    def cost(self, plugin: str, method: str) -> Cost:
        """For who counts and times by himself, because he calls several in a row."""
        return self._costs.setdefault(plugin, {}).setdefault(method, Cost())

    def wrap(
        self, plugin: str, method: str, function: Callable[P, R], *, expected: tuple[type[BaseException], ...] = ()
    ) -> Callable[P, R]:
        """The function, metered. expected: exceptions with which it answers, which are none of its faults."""
        cost, timer, budget = self.cost(plugin, method), self.timer, self.budget

        @functools.wraps(function)
        def metered(*args: P.args, **kwargs: P.kwargs) -> R:
            began = timer()
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if not isinstance(error, expected):
                    cost.exceptions += 1
                _blame_and_raise(error, plugin)
            finally:
                spent = timer() - began
                cost.calls += 1
                cost.seconds += spent
                if spent > budget:
                    self.overrun(plugin, method, spent)

        setattr(metered, _WITHIN, function)
        return metered

    def watch(self, plugin: str, made: T, *, expected: tuple[type[BaseException], ...] = ()) -> T:
        """Meter the methods of a plugin's object that stand in `METHODS` for its kind. plugin: "kind.instance". An object that
        comes again, because its plugin has but one, is metered once, for who watched it last."""
        kind = plugin.partition(".")[0]
        for method in (*METHODS[kind], *_NAMED.get(kind, ())):
            function = getattr(made, method, None)
            if function is not None:
                function = getattr(function, _WITHIN, function)
                metered = method in METHODS[kind]
                wrapped = (
                    self.wrap(plugin, method, function, expected=expected) if metered else _named(plugin, function)
                )
                # Past a `__setattr__` of the plugin's own, that of a frozen dataclass for instance.
                object.__setattr__(made, method, wrapped)
        return made

    def costs(self) -> Costs:
        """What was called so far. Any thread; a plugin that was never called is left out."""
        table = {}
        for plugin, methods in list(self._costs.items()):
            rows = {method: cost.as_data() for method, cost in list(methods.items()) if cost.all_calls}
            if rows:
                table[plugin] = rows
        return table

    def forget(self, plugin: str) -> None:
        """Count the plugin's calls from here on."""
        for cost in self._costs.get(plugin, {}).values():
            cost.forget()

    def overrun(self, plugin: str, method: str, spent: float) -> None:
        """A call took longer than the budget."""
        cost = self.cost(plugin, method)
        cost.overruns += 1
        now = self.timer()
        if now - cost.said_at < SECONDS_BETWEEN_LINES:
            return
        more, cost.told = cost.overruns - cost.told - 1, cost.overruns
        cost.said_at = now
        log.warning(
            "plugin %s: %s took %.3f ms, the budget is %g ms (--plugin-time-budget)%s",
            plugin,
            method,
            spent * 1e3,
            self.budget * 1e3,
            f"; {more} more since the last such line" if more else "",
        )


def merged(*tables: Costs) -> Costs:
    """The sums of several processes."""
    sums: Costs = {}
    for table in tables:
        for plugin, methods in table.items():
            for method, row in methods.items():
                into = sums.setdefault(plugin, {}).setdefault(method, dict.fromkeys(row, 0.0))
                for name, value in row.items():
                    into[name] += value
    return sums


def _blame_and_raise(error: BaseException, plugin: str) -> NoReturn:
    blame(error, plugin)
    if (known := ready_for(error)) is not error:
        blame(known, plugin)
        raise known from error
    raise error


def _named(plugin: str, function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            _blame_and_raise(error, plugin)

    setattr(named, _WITHIN, function)
    return named
