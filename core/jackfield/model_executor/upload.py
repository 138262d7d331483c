"""NumPy arrays to a device: one place that knows about pinned memory and read-only arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray


def upload(array: NDArray[Any], device: torch.device, dtype: DTypeLike) -> torch.Tensor:
    """A copy of `array` as `dtype` on `device`; does not wait for the copy."""
    copied = torch.from_numpy(np.array(array, dtype=dtype))
    if device.type == "cpu":
        return copied
    return copied.pin_memory().to(device, non_blocking=True)


def hand_over(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """`array` on `device`, in its own memory on a CPU: nobody may write to it any more, nor to what it is a view of."""
    if device.type == "cpu":
        return torch.from_numpy(array)
    return torch.from_numpy(array).pin_memory().to(device, non_blocking=True)
