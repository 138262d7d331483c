"""Results that are still on their way from a device. A stand-in plays the device's event; there is none in a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from jackfield.model_executor.results import NOT_FINITE, TorchResult


class Event:
    """Happens at the `after`-th query, or when it is waited for."""

    def __init__(self, after: float) -> None:
        self.after = after
        self.waited = False

    def query(self) -> bool:
        self.after -= 1
        return self.waited or self.after < 0

    def synchronize(self) -> None:
        self.waited = True


def pending(event: Any) -> TorchResult:
    result = TorchResult(4, np.array([0, 2, 3]), torch.tensor([7, -1, 9]))
    result._copied = event
    return result


def test_ragged_results_and_failed_rows() -> None:
    result = pending(None).result()
    assert result.tokens.tolist() == [7, 9]
    assert result.starts.tolist() == [0, 1, 1, 1, 2]
    assert dict(result.errors) == {2: NOT_FINITE}
    assert result.tokens.dtype == np.dtype(np.int32)
    assert result.starts.dtype == np.dtype(np.int32)


def test_a_step_of_middle_chunks_has_no_tokens() -> None:
    result = TorchResult(3, np.array([], dtype=np.int64), None).result()
    assert (result.tokens.size, result.starts.tolist(), dict(result.errors)) == (0, [0, 0, 0, 0], {})


def test_ready_asks_and_result_waits() -> None:
    event = Event(after=2)
    waiting = pending(event)
    assert not waiting.ready()
    assert waiting.result().tokens.tolist() == [7, 9]
    assert event.waited
    assert waiting.ready()


def test_result_gives_up_at_its_limit() -> None:
    waiting = pending(Event(after=float("inf")))
    with pytest.raises(TimeoutError, match=r"0\.0 s"):
        waiting.result(timeout=0.0)
    assert pending(Event(after=1)).result(timeout=60.0).tokens.tolist() == [7, 9]
