"""Kind `gate`: holds a new request back until something that it needs is there: a compiled grammar, an adapter, KV from afar."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.hookspecs.cache import CacheKey
from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec


class GateAnswer(enum.Enum):
    """OPEN: nothing to wait for. WAITING: a `GateEvent` will come for this request."""

    OPEN = "open"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What a gate sees of a request.

    uid             the request's number, never reused
    key             what identifies the KV of its prompt: namespace and tokens
    max_new_tokens  most tokens that it will generate
    arrival         seconds on the scheduler's clock
    """

    uid: int
    key: CacheKey
    max_new_tokens: int
    arrival: float


@dataclass(frozen=True, kw_only=True)
class GateEvent:
    """The wait of one request is over. error: why it cannot run, for its client, with the HTTP status `status_code`, 400 to
    599; empty: the gate is open."""

    uid: int
    error: str = ""
    status_code: int = 500


class Gate(ABC):
    """Called from the scheduler's thread only, and no method may block: work is done elsewhere and told by `poll`.

    A request passes the gates of a run one behind the other, in stack order. While it waits it is neither offered to the
    policy nor does it hold a row or KV; once all are open it stands in the queue by its arrival. It may be aborted at any
    time. Raise `RequestFault` from `enter` to refuse a request; any other error is the plugin's fault, and ends the request
    (`enter`) or all requests that wait at this gate (`poll`).
    """

    @abstractmethod
    def enter(self, request: GateRequest) -> GateAnswer:
        """A request arrives."""

    @abstractmethod
    def poll(self) -> Sequence[GateEvent]:
        """The waits that ended since the last call. Called once a turn while anybody waits here, also when nothing runs: up to
        some thousand times a second, so it must be cheap."""

    @abstractmethod
    def cancel(self, uid: int) -> None:
        """The request has ended while it waited. An event for it that comes nevertheless is ignored."""

    def close(self) -> None:
        """The run ends; nobody waits any more. May be called twice."""
        return None


@dataclass(frozen=True, kw_only=True)
class GateContext(PluginContext):
    """vocab_size: ids are 0 .. vocab_size - 1."""

    vocab_size: int


class GateSpecs:
    @hookspec
    def jackfield_gate(self, context: GateContext) -> Gate:  # type: ignore[empty-body]
        """Make the gate.

        Process: scheduler. When: once at start. Cost: any. Example:

            @hookimpl
            def jackfield_gate(context: GateContext) -> Gate:
                from my_package.gate import MyGate

                return MyGate(context.options)
        """
