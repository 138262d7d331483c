"""Asks the NVIDIA driver for the first visible CUDA device, through its C libraries and without making a context.

`libcuda` decides what is visible (CUDA_VISIBLE_DEVICES and partitions included), so that the answer is the device that
torch would use; `libnvidia-ml` knows the free memory, which `libcuda` tells only inside a context.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in the driver's header."""


@dataclass(frozen=True, kw_only=True)
class CudaDevice:
    """free_memory and total_memory in bytes; free equals total where the driver's management library is missing."""

    name: str
    capability: tuple[int, int]
    free_memory: int
    total_memory: int
    count: int


class _NvmlMemory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def first_cuda_device(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[CudaDevice | None, str]:
    """The device that CUDA numbers 0 in this process; or None and the reason why there is none.

    `load` opens a shared library by name and raises OSError if it is not there.
    """
    try:
        cuda = load("libcuda.so.1")
    except OSError:
        return None, "the NVIDIA driver's library is not installed"
    status = cuda.cuInit(0)
    if status != 0:
        return None, f"the NVIDIA driver refuses to start ({_error(cuda, status)})"
    count = ctypes.c_int()
    _check(cuda, cuda.cuDeviceGetCount(ctypes.byref(count)))
    if count.value == 0:
        return None, "the NVIDIA driver shows no device (see CUDA_VISIBLE_DEVICES)"
    device = ctypes.c_int()
    _check(cuda, cuda.cuDeviceGet(ctypes.byref(device), 0))
    total = ctypes.c_size_t()
    _check(cuda, cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device))
    name = ctypes.create_string_buffer(256)
    _check(cuda, cuda.cuDeviceGetName(name, len(name), device))
    free = _free_memory(_uuid(cuda, device), load)
    return CudaDevice(
        name=name.value.decode(errors="replace"),
        capability=(_attribute(cuda, _MAJOR, device), _attribute(cuda, _MINOR, device)),
        free_memory=total.value if free is None else min(free, total.value),
        total_memory=total.value,
        count=count.value,
    ), ""


def _attribute(cuda: Any, attribute: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _check(cuda, cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device))
    return value.value


def _uuid(cuda: Any, device: ctypes.c_int) -> uuid.UUID:
    raw = (ctypes.c_ubyte * 16)()
    _check(cuda, cuda.cuDeviceGetUuid(ctypes.byref(raw), device))
    return uuid.UUID(bytes=bytes(raw))


def _free_memory(device: uuid.UUID, load: Callable[[str], Any]) -> int | None:
    """Bytes free on the device, or None if the management library is missing or does not know it (a partition)."""
    try:
        nvml = load("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        handle, memory = ctypes.c_void_p(), _NvmlMemory()
        if nvml.nvmlDeviceGetHandleByUUID(f"GPU-{device}".encode(), ctypes.byref(handle)) != 0:
            return None
        if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
            return None
        return int(memory.free)
    finally:
        nvml.nvmlShutdown()


def _check(cuda: Any, status: int) -> None:
    if status != 0:
        raise OSError(f"the NVIDIA driver failed: {_error(cuda, status)}")


def _error(cuda: Any, status: int) -> str:
    text = ctypes.c_char_p()
    if cuda.cuGetErrorString(status, ctypes.byref(text)) == 0 and text.value:
        return f"error {status}, {text.value.decode(errors='replace')}"
    return f"error {status}"
