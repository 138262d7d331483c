"""What the manifest's lists cannot say: whether Triton and its compiler are installed, and what the GPU can do. Imports neither
Triton nor torch."""

from __future__ import annotations

import os
from importlib.util import find_spec
from shutil import which

from jackfield.hookspecs import DeviceDescription, Need, Problem

OLDEST = (8, 0)
"""Compute capability from which on Triton supports NVIDIA GPUs."""


def check(need: Need, device: DeviceDescription) -> list[Problem]:
    """What keeps it from serving; empty: nothing."""
    problems = []
    if find_spec("triton") is None:
        problems.append(
            Problem(text="the package triton is not installed", hint='pip install "jackfield-ops-triton[triton]"')
        )
    if device.type == "cuda" and not (os.environ.get("CC") or which("gcc") or which("clang")):
        text = "there is no C compiler, with which Triton builds what starts its kernels"
        problems.append(Problem(text=text, hint="install gcc, or name one in CC"))
    if device.capability is not None and device.capability < OLDEST:
        have, least = (".".join(map(str, number)) for number in (device.capability, OLDEST))
        problems.append(Problem(text=f"{device.name} has compute capability {have}, Triton needs {least}"))
    return problems
