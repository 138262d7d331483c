"""One small interface to the machine that computes: copies, events, memory, recorded work. Internal for now; the only place of
the torch side that knows what a CUDA stream is."""

from __future__ import annotations

from jackfield.model_executor.device.cpu import CpuDevice
from jackfield.model_executor.device.device import Device, Download, Graph, Memory
from jackfield.model_executor.device.open import open_device

__all__ = ("CpuDevice", "Device", "Download", "Graph", "Memory", "open_device")
