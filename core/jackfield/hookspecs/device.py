"""The device of a run, as a plugin's probe is told of it. No NumPy, so that whoever lists plugins can have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeviceDescription:
    """type                "cpu" or "cuda"
    name                for people
    available_memory    bytes that can be taken now; on CUDA the device's
    total_memory        bytes
    cores               CPU cores that this process may use
    capability          CUDA compute capability (major, minor); None on a CPU
    reason              why this device, for `explain`
    """

    type: str
    name: str
    available_memory: int
    total_memory: int
    cores: int
    capability: tuple[int, int] | None = None
    reason: str = ""
