"""How many tokens a worker's result has for each row, and whether it may: what does not fit its batch stops the replica."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import WorkerResult
from jackfield.managers.scheduler.batch import StepInFlight

log = logging.getLogger(__name__)


class BadWorkerResult(Exception):
    """A result that does not match its batch: the worker and the scheduler disagree, the replica cannot go on."""


def read_counts(
    step: StepInFlight, result: WorkerResult, vocab_size: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """How many tokens each row gave [n], and the rows that failed [n]. Raises BadWorkerResult for what
    does not fit the batch."""
    n = len(step.batch.rows)
    if not isinstance(result, WorkerResult):
        raise BadWorkerResult(f"a {type(result).__name__} came back, not a WorkerResult")
    for name, numbers in (("tokens", result.tokens), ("starts", result.starts)):
        if not isinstance(numbers, np.ndarray) or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise BadWorkerResult(f"{name} came back as {numbers!r:.200}, not as one dimension of integers")
    failed = np.full(n, bool(result.refused))
    for i, message in result.errors.items():
        if not 0 <= i < n:
            raise BadWorkerResult(f"an error for row {i} of a batch of {n}: {message}")
        failed[i] = True
        log.error("request %s failed in the worker: %s", step.requests[i].rid, message)
    counts = result.starts[1:] - result.starts[:-1]
    if len(counts) != n or result.starts[0] != 0 or result.starts[-1] != len(result.tokens):
        raise BadWorkerResult(f"{len(counts)} rows with {len(result.tokens)} tokens came back for a batch of {n}")
    most = step.sample if step.batch.most is None else np.where(step.sample, step.batch.most, 0)
    # Where one token a row is asked for, as in most steps, one comparison tells that all is as it should be.
    if step.batch.most is not None or np.count_nonzero(counts != step.sample):
        _check_counts(step, counts, most, failed)
    outside = (result.tokens < 0) | (result.tokens >= vocab_size)
    if np.count_nonzero(outside):
        owners = np.repeat(np.arange(n), counts)
        for i, token in zip(owners[outside].tolist(), result.tokens[outside].tolist(), strict=True):
            if not failed[i]:
                failed[i] = True
                log.error("request %s: the worker sampled %d, outside the vocabulary", step.requests[i].rid, token)
    return counts, failed


def _check_counts(step: StepInFlight, counts: NDArray[np.int32], most: NDArray[Any], failed: NDArray[np.bool_]) -> None:
    """Raises BadWorkerResult unless each row gave as many tokens as it may [n each].

    A row that failed may give what it likes, though never less than nothing.
    """
    wrong = ((counts < step.sample) | (counts > most)) & ~failed | (counts < 0)
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise BadWorkerResult(
            f"{counts[i]} tokens came back for batch row {i}, where {int(step.sample[i])} to {int(most[i])} were asked"
        )
