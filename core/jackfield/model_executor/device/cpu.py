"""The host as a device: nothing is copied, nothing is waited for, and there is nothing to record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import DTypeLike, NDArray

from jackfield.model_executor.device.device import Device, Download, Graph, Memory
from jackfield.model_executor.memory import host_available


class HostDownload(Download):
    """The tensors themselves, which nobody changes any more."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tuple(tensors)

    def ready(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> None:
        pass


class CpuDevice(Device):
    """The machine itself."""

    host = True
    records = False
    compiles = False

    def __init__(self, device: torch.device | None = None) -> None:
        self.torch_device = torch.device("cpu") if device is None else device

    def upload(self, array: NDArray[Any], dtype: DTypeLike) -> torch.Tensor:
        return torch.from_numpy(np.array(array, dtype=dtype))

    def hand_over(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array)

    def fill(self, tensor: torch.Tensor, array: NDArray[Any]) -> None:
        tensor.numpy()[...] = array

    def download(self, tensors: Sequence[torch.Tensor]) -> Download:
        return HostDownload(tensors)

    def memory(self) -> Memory:
        return Memory(free=host_available(), total=int(psutil.virtual_memory().total))

    def peak(self) -> int:
        return 0

    def reset_peak(self) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def graph_pool(self) -> Any:
        return None

    def capture(self, run: Callable[[], Any], pool: Any) -> Graph:
        raise RuntimeError("a CPU runs what it is called for: there is no recorded work")
