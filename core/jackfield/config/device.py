"""The device a run would use: its kind, memory and cores, found without torch and without a CUDA context.

Knows CPUs (with the limits of the control group it runs in) and CUDA devices as the driver shows them, if the installed torch
can use them.
"""

from __future__ import annotations

import os
import platform

import psutil

from jackfield.config.cgroup import cgroup_limits
from jackfield.config.cuda_driver import CudaDevice, first_cuda_device
from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.config.torch_build import without_cuda
from jackfield.hookspecs.device import DeviceDescription

DEVICE_NAMES = ("auto", "cpu", "cuda")

__all__ = ["DEVICE_NAMES", "DeviceDescription", "describe_device", "usable_cores"]


def describe_device(name: str) -> DeviceDescription:
    """The device that `--device name` ("auto", "cpu", "cuda") means on this machine.

    Raises ConfigurationError for an unknown name, and for "cuda" where there is none.
    """
    if name not in DEVICE_NAMES:
        raise ConfigurationError(f"--device: {name!r} is no device{did_you_mean(name, DEVICE_NAMES)}")
    if name == "cpu":
        return _cpu("named by --device")
    cuda, why_not = usable_cuda_device()
    if cuda is not None:
        return _cuda(cuda, "named by --device" if name == "cuda" else "a CUDA device is there")
    if name == "cuda":
        raise ConfigurationError(f"--device cuda: {why_not}; use --device cpu, or auto to take what is there")
    return _cpu(f"no CUDA device: {why_not}")


def why_absent(name: str) -> str:
    """Why this machine has no such device; "" if it has."""
    if name not in DEVICE_NAMES:
        return f"{name!r} is no device"
    if name != "cuda":
        return ""
    cuda, why_not = usable_cuda_device()
    return why_not if cuda is None else ""


def usable_cuda_device() -> tuple[CudaDevice | None, str]:
    """The device that a run on "cuda" would use; or None and the reason why there is none for it."""
    cuda, why_not = first_cuda_device()
    if cuda is not None and (version := without_cuda()):
        return None, f"{cuda.name} is here, but torch {version} is built without CUDA (PyPI's is built with it)"
    return cuda, why_not


def affine_cores() -> int:
    """CPU cores on which this process may run, whatever share of their time it may have."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_cores() -> int:
    """CPU cores that this process may use, at least 1: its affinity, and the quota of its control group."""
    affinity, quota = affine_cores(), cgroup_limits().cores
    return max(1, affinity if quota is None else min(affinity, int(quota)))


def _cpu(reason: str) -> DeviceDescription:
    memory, limits = psutil.virtual_memory(), cgroup_limits()
    available, total = int(memory.available), int(memory.total)
    if limits.memory is not None and limits.memory_left is not None:
        available, total = min(available, limits.memory_left), min(total, limits.memory)
    return DeviceDescription(
        type="cpu",
        name=platform.processor() or platform.machine() or "cpu",
        available_memory=available,
        total_memory=total,
        cores=usable_cores(),
        reason=reason,
    )


def _cuda(device: CudaDevice, reason: str) -> DeviceDescription:
    return DeviceDescription(
        type="cuda",
        name=device.name,
        available_memory=device.free_memory,
        total_memory=device.total_memory,
        cores=usable_cores(),
        capability=device.capability,
        reason=reason,
    )
