"""What the main process must know of a replica to check a request. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.hookspecs import Pooling


@dataclass(frozen=True, kw_only=True)
class ReplicaLimits:
    """What the scheduler said it can hold. vocab_size: valid ids are 0 .. vocab_size - 1.

    max_answers   most answers of one call with n above 1
    pooling       what the run gives of each prompt; None: it generates
    """

    context_length: int
    total_slots: int
    page_size: int
    vocab_size: int
    max_answers: int = 1024
    pooling: Pooling | None = None
