"""The device of a torch device. A further accelerator has its line here."""

from __future__ import annotations

import torch

from jackfield.model_executor.device.cpu import CpuDevice
from jackfield.model_executor.device.device import Device


def open_device(device: torch.device) -> Device:
    """Raises ValueError for a type that nobody has written a `Device` for."""
    if device.type == "cpu":
        return CpuDevice(device)
    if device.type == "cuda":
        from jackfield.model_executor.device.cuda import CudaDevice

        return CudaDevice(device)
    raise ValueError(f"there is no support for devices of type {device.type!r} here: cpu and cuda are known")
