"""Whether a worker's result has as many tokens as its batch asked for. Knows no request."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.managers.scheduler.batch import StepInFlight


class BadWorkerResult(Exception):
    """A result that does not match its batch: the worker and the scheduler disagree, the replica cannot go on."""


def check_counts(step: StepInFlight, counts: NDArray[np.int32], most: NDArray[Any], failed: NDArray[np.bool_]) -> None:
    """Raises BadWorkerResult unless each row gave as many tokens as it may [n each].

    A row that failed may give what it likes, though never less than nothing.
    """
    wrong = ((counts < step.sample) | (counts > most)) & ~failed | (counts < 0)
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise BadWorkerResult(
            f"{counts[i]} tokens came back for batch row {i}, where {int(step.sample[i])} to {int(most[i])} were asked"
        )
