"""Results that are still on their way from a device, which is a stand-in here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from jackfield.model_executor.results import NOT_FINITE, TorchResult
from jackfield.testing.fake_device import FakeDevice


def pending(device: FakeDevice) -> TorchResult:
    return TorchResult(device, 4, np.array([0, 2, 3]), torch.tensor([7, -1, 9]))


def test_ragged_results_and_failed_rows() -> None:
    result = pending(FakeDevice()).result()
    assert result.tokens.tolist() == [7, 9]
    assert result.starts.tolist() == [0, 1, 1, 1, 2]
    assert dict(result.errors) == {2: NOT_FINITE}
    assert result.tokens.dtype == np.dtype(np.int32)
    assert result.starts.dtype == np.dtype(np.int32)


def test_a_step_of_middle_chunks_has_no_tokens() -> None:
    result = TorchResult(FakeDevice(), 3, np.array([], dtype=np.int64), None).result()
    assert (result.tokens.size, result.starts.tolist(), dict(result.errors)) == (0, [0, 0, 0, 0], {})


def test_ready_asks_and_result_waits() -> None:
    device = FakeDevice()
    waiting = pending(device)
    assert not waiting.ready()
    assert device.log == ["download 1"]
    assert waiting.result().tokens.tolist() == [7, 9]
    assert device.log == ["download 1", "wait 1"]
    assert waiting.ready()


def test_result_gives_up_at_its_limit() -> None:
    device = FakeDevice()
    waiting = pending(device)
    with pytest.raises(TimeoutError, match=r"0\.0 s"):
        waiting.result(timeout=0.0)
    device.finished = True
    assert waiting.result(timeout=60.0).tokens.tolist() == [7, 9]
