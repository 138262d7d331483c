"""What the main process must know of a replica to check a request. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.hookspecs import Pooling
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits


@dataclass(frozen=True, kw_only=True)
class ReplicaLimits:
    """What the scheduler said it can hold. vocab_size: valid ids are 0 .. vocab_size - 1.

    requests      the run's own ceilings
    pooling       what the run gives of each prompt; None: it generates
    kv_bytes_per_slot   of all layers together; 0 where there is no real memory
    """

    context_length: int
    total_slots: int
    page_size: int
    vocab_size: int
    requests: RequestLimits = DEFAULT_LIMITS
    pooling: Pooling | None = None
    kv_bytes_per_slot: int = 0
