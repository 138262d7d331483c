"""Whether FlashInfer can compile its kernels here, which it does with nvcc and ninja when it first plans for them.

It looks where FlashInfer looks, in its variables too. Imports neither it nor torch, and does not know which kernels are compiled
already.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from jackfield.hookspecs import Problem

LAST_PLACE = Path("/usr/local/cuda")


def compiler_problems() -> list[Problem]:
    """What is missing. Nothing where compiled kernels are installed: those of a run may be among them."""
    if importlib.util.find_spec("flashinfer_jit_cache") is not None:
        return []
    problems = []
    if not _has_nvcc():
        problems.append(
            Problem(
                text="CUDA's compiler nvcc is not here, with which FlashInfer builds its kernels",
                hint="install a CUDA toolkit and name it in CUDA_HOME, or install flashinfer-jit-cache",
            )
        )
    scripts = str(Path(sys.executable).parent)
    if importlib.util.find_spec("flashinfer") is not None and shutil.which("ninja") is None:
        problems.append(
            Problem(
                text="the program ninja, with which FlashInfer builds its kernels, is not on PATH",
                hint=f'export PATH="{scripts}:$PATH"' if shutil.which("ninja", path=scripts) else "pip install ninja",
            )
        )
    return problems


def _has_nvcc() -> bool:
    if named := os.environ.get("FLASHINFER_NVCC"):
        return shutil.which(named) is not None
    if home := os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
        return (Path(home) / "bin" / "nvcc").exists()
    return shutil.which("nvcc") is not None or (LAST_PLACE / "bin" / "nvcc").exists()
