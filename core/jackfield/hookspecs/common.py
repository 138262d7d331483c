"""What all seams share: the context record, problems, fault scopes and the amounts of KV memory."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pydantic import BaseModel

GRAPH = "graph"
"""Feature of a worker that records decode steps, and of attention and operators whose device work may be recorded."""


@dataclass(frozen=True, kw_only=True)
class PluginContext:
    """What every provider hook is handed.

    kind, name     the plugin's own row in its manifest
    instance       the name under which this use of the plugin runs; equal to `name` unless the operator gave another
    options        the validated options model that the manifest names, or None if it names none
    """

    kind: str
    name: str
    instance: str
    options: BaseModel | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One reason why a plugin cannot serve, in words that an operator can act on."""

    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.hint})" if self.hint else self.text


class FaultScope(enum.Enum):
    """How far a plugin's exception reaches.

    REQUEST   ends that request with an error
    BATCH     ends the requests of the batch; no forward was begun for them
    DEGRADE   the step goes on with the default decision; shown in /health; a stop at the limit
    STOP      the replica cannot go on: state or device may be half changed
    COUNT     an observer's or a sink's: counted, logged once per kind of error, quarantined at the limit
    """

    REQUEST = "request"
    BATCH = "batch"
    DEGRADE = "degrade"
    STOP = "stop"
    COUNT = "count"


class RequestFault(Exception):
    """Raised by a plugin to end one request. `message` reaches the client, with the HTTP status `status_code`, 400 to 599;
    keep it free of internals.

    For gates (`Gate.enter`), and reserved for output processors, a kind to come. Raised by another hook it is an error like
    any other, with that hook's scope; a worker ends one request by `WorkerResult.errors`.
    """

    def __init__(self, message: str, *, status_code: int = 500) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code


class BatchFault(Exception):
    """Raised by an attention backend's `plan` that cannot serve this batch and has done nothing for it: the requests of the
    batch end with an error, and the replica goes on. Any other exception out of a worker or a backend stops the replica,
    because device state may be half changed then."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one run asks of a plugin; a manifest's lists and its probe are checked against it.

    Any field may be None or empty when the question does not arise (a policy has no dtype).
    """

    device: str
    dtype: str | None = None
    architecture: str | None = None
    head_sizes: tuple[int, ...] = ()
    page_size: int = 1
    layout: str | None = None
    features: frozenset[str] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)


NO_SLOTS: NDArray[np.int32] = np.empty(0, dtype=np.int32)
NO_SLOTS.flags.writeable = False


def no_slots() -> NDArray[np.int32]:
    """The shared empty array, as a dataclass default."""
    return NO_SLOTS


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """KV memory that is wanted, in token slots; always whole pages.

    window   slots of the window pool (`WorkerLimits.window`)
    """

    slots: int
    window: int = 0


@dataclass(frozen=True, kw_only=True)
class Freed:
    """Slots that now belong to the caller, who gives them to the allocator. Whole pages. int32 [n].

    window   slots that are not given up themselves, but whose KV of the window layers is; what `slots` have of it goes with
             them. int32 [m]
    """

    slots: NDArray[np.int32] = field(default_factory=no_slots)
    window: NDArray[np.int32] = field(default_factory=no_slots)
