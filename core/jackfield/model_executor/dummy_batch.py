"""Batches of rows that nobody asked for, to run before there are requests: their tokens are all id 0, and as nothing was written
to the request-to-token table for them, all that they write and read is the dummy page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch


def dummy_batch(
    new_tokens: NDArray[np.int32], computed: NDArray[np.int32] | None = None, *, pools: bool
) -> ModelWorkerBatch:
    """Rows 1 .. n with so many new tokens, behind so many (None: none) that count as computed. All are sampled, or pooled."""
    n = len(new_tokens)
    nobody, everybody = np.zeros(n, dtype=np.bool_), np.ones(n, dtype=np.bool_)
    return ModelWorkerBatch(
        step=0,
        rows=np.arange(1, n + 1, dtype=np.int32),
        new_tokens=new_tokens,
        computed=np.zeros(n, dtype=np.int32) if computed is None else computed,
        token_ids=np.zeros(int(new_tokens.sum()), dtype=np.int32),
        relay=nobody,
        sample=nobody if pools else everybody,
        pool=everybody if pools else None,
    )
