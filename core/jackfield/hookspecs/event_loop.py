"""Kind `event_loop`: drives the scheduler's phases."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec


class Want(enum.Enum):
    """Which work `next_batch` should look for."""

    ANY = "any"
    PREFILL = "prefill"
    DECODE = "decode"


class Wake(enum.Enum):
    """Why `wait` returned. NOTHING: there is no work and nothing to wait for (inline only)."""

    MESSAGE = "message"
    RESULT = "result"
    GATE = "gate"
    DEADLINE = "deadline"
    NOTHING = "nothing"


class StepOutcome(enum.Enum):
    """RAN: a step was launched or committed. IDLE: there was nothing to do."""

    RAN = "ran"
    IDLE = "idle"


class InFlight(Protocol):
    """A launched step. deferred: it must be sampled only after the commits of the steps before it."""

    @property
    def deferred(self) -> bool: ...

    def ready(self) -> bool:
        """Whether its results are there, so that a commit would not wait."""
        ...


class SchedulerPhases(Protocol):
    """The phases that the core offers. A loop calls them in any order that keeps the rules of each.

    Each launched step is sampled exactly once and committed exactly once, in launch order per lane.
    `ScheduleBatch` is opaque to a loop.
    """

    def ingest(self) -> int:
        """Take in the messages that wait. Returns how many."""
        ...

    def poll(self) -> int:
        """Gates, loads, transfers, timeouts, deadlines. Returns how many changed something."""
        ...

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        """Decide the next batch, or None when there is nothing to run now."""
        ...

    def launch(self, batch: Any, lane: int = 0) -> InFlight:
        """Hand the batch to the worker; advances `computed` of its requests."""
        ...

    def sample(self, step: InFlight) -> None:
        """Let the worker sample. After the earlier commits when `step.deferred`."""
        ...

    def commit(self, step: InFlight) -> None:
        """Wait for the result and apply it: append, finish, release, cache, send."""
        ...

    def wait(self, until: float | None = None) -> Wake:
        """Block until something happens, at the latest at `until` (scheduler clock). The one place where a virtual
        clock advances. On an empty in-memory channel it returns at once."""
        ...

    def idle(self) -> None:
        """Housekeeping when nothing runs: leak check, idle metrics."""
        ...


class EventLoop(ABC):
    """Owned by one thread. `step` is called again and again until the process ends.

    A loop that launches a step before the one before it is committed declares the feature `overlap`: a worker that computes
    in `launch` is put on a thread of its own then, and everything else is the same.
    """

    @abstractmethod
    def step(self) -> StepOutcome:
        """One turn: ingest, decide, launch and commit as far as this loop's depth allows. Never blocks on messages."""

    @abstractmethod
    def settle(self) -> None:
        """Commit everything in flight. Called before control operations that need a quiet worker, and at shutdown."""


@dataclass(frozen=True, kw_only=True)
class EventLoopContext(PluginContext):
    """phases: what the loop drives."""

    phases: SchedulerPhases


class EventLoopSpecs:
    @hookspec
    def jackfield_event_loop(self, context: EventLoopContext) -> EventLoop:  # type: ignore[empty-body]
        """Make the event loop.

        Process: scheduler. When: once at start. Cost: any. Example:

            @hookimpl
            def jackfield_event_loop(context: EventLoopContext) -> EventLoop:
                from my_package.loop import MyLoop

                return MyLoop(context.phases)
        """
