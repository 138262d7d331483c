"""The native library: its levels, what it says when it is missing, and greedy sampling at each level."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from jackfield_ops_cpu import library as module
from jackfield_ops_cpu.library import LEVEL_VARIABLE, NativeLibraryMissing, library, use_level


def arg_max(native: ctypes.CDLL, logits: np.ndarray, threads: int = 2) -> list[int]:
    tokens = np.full(len(logits), -7, dtype=np.int64)
    stride = logits.strides[0] // 4
    native.jf_arg_max(logits.ctypes.data, *logits.shape, stride, tokens.ctypes.data, threads)
    return list(tokens.tolist())


def test_a_machine_with_a_compiler_has_the_library() -> None:
    assert shutil.which("c++") is None or library()


@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 1000, 49_152])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_lowest_of_equals_is_taken(native: ctypes.CDLL, vocab: int, rows: int) -> None:
    logits = np.random.default_rng(vocab).integers(-3, 3, (rows, vocab + 1)).astype(np.float32)[:, :vocab]
    assert arg_max(native, logits) == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("place", [0, 63, 64, 129])
def test_rows_without_an_answer(native: ctypes.CDLL, place: int) -> None:
    logits = np.zeros((4, 130), dtype=np.float32)
    logits[0, place] = np.nan
    logits[1, place] = np.inf
    logits[2] = -np.inf
    logits[3, place] = -np.inf
    assert arg_max(native, logits) == [-1, -1, -1, 1 if place == 0 else 0]


def test_levels_can_be_forced_and_unknown_ones_are_refused(native: ctypes.CDLL) -> None:
    run = [sys.executable, "-c", "from jackfield_ops_cpu.library import level; print(level())"]
    name = native.jf_level().decode()
    forced = subprocess.run(run, env={**os.environ, LEVEL_VARIABLE: name}, capture_output=True, text=True, check=True)
    assert forced.stdout.strip() == name
    with pytest.raises(NativeLibraryMissing, match="'avx3' is no level; the levels are scalar, avx2"):
        use_level(native, "avx3")


FORKED = """
import os, threading
import numpy as np
from jackfield_ops_cpu.library import library

logits = np.eye(6, 300, dtype=np.float32)

def right():
    tokens = np.full(6, -7, dtype=np.int64)
    library().jf_arg_max(logits.ctypes.data, 6, 300, 300, tokens.ctypes.data, 3)
    return tokens.tolist() == [0, 1, 2, 3, 4, 5]

assert right()
stop = threading.Event()
busy = threading.Thread(target=lambda: [right() for _ in iter(stop.is_set, True)])
busy.start()  # so that some forks come in the midst of a run
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(0 if right() and right() else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
busy.join()
assert right()
"""


def test_a_child_of_fork_has_threads_of_its_own() -> None:
    """It inherits a pool whose workers are its parent's: waiting for them would never end."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=300)


def test_a_library_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "source_digest", lambda project: "0" * 16)
    library.cache_clear()
    try:
        with pytest.raises(NativeLibraryMissing, match=r"other sources.*build_native\.py"):
            library()
    finally:
        library.cache_clear()


def test_what_is_said_without_a_library(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    monkeypatch.setattr(module, "_LIBRARY", tmp_path / "none.so")
    reason = tmp_path / "why.txt"
    reason.write_text("no C++ compiler was found (c++, g++, clang++)\n")
    monkeypatch.setattr(module, "_REASON", reason)
    library.cache_clear()
    try:
        with pytest.raises(NativeLibraryMissing, match=r"no C\+\+ compiler was found.*reinstall"):
            library()
    finally:
        library.cache_clear()
