"""NumPy arrays to a device without waiting: one place that knows of pinned memory."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray


def to_device(array: NDArray[Any], device: torch.device | str) -> torch.Tensor:
    """`array` on the device: on a CPU in its own memory, so that nobody may write to it any more; elsewhere a copy that is
    enqueued, from pinned memory, since a copy from pageable memory makes the host wait for all that was enqueued before."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
