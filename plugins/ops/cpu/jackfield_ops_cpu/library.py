"""The native library: found, loaded by ctypes once a process, and asked what it can do. No torch.

Every function takes raw pointers; whoever calls one has checked shapes and dtypes, and keeps the memory alive for the call.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from jackfield_ops_cpu.source_digest import source_digest

LEVELS = ("scalar", "avx2", "avx512", "avx512_vnni", "avx512_bf16")
"""Instruction-set levels, the lowest first."""

LEVEL_VARIABLE = "OPS_CPU_ISA"
"""Environment variable that forces a lower level than the processor's own, for tests and to find faults. It has no prefix
JACKFIELD_, because those are settings of the runtime, which knows them all."""

_PACKAGE = Path(__file__).parent
_LIBRARY = _PACKAGE / "libjackfield_cpu.so"
_REASON = _PACKAGE / "not_built.txt"

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64

SIGNATURES: dict[str, tuple[list[type], type | None]] = {
    "jf_digest": ([], ctypes.c_char_p),
    "jf_level": ([], ctypes.c_char_p),
    "jf_use_level": ([ctypes.c_char_p], _INT),
    "jf_arg_max": ([_POINTER, _LONG, _LONG, _LONG, _POINTER, _INT], None),
    "jf_pack_dense": ([_POINTER, _INT, _LONG, _LONG, _LONG, _POINTER, _INT], None),
    "jf_look_up_dense": ([_POINTER, _POINTER, _LONG, _POINTER, _INT], None),
    "jf_linear": ([_POINTER, _POINTER, _INT, _LONG, _LONG, _POINTER, _POINTER, _INT, _INT], None),
    "jf_norm": ([_POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER, _LONG, _LONG, _INT], None),
    "jf_embedding": ([_POINTER, _LONG, _POINTER, _LONG, _POINTER, _INT], None),
    "jf_pre_attention": ([_POINTER, _LONG, *[_POINTER] * 5, _LONG, _LONG, *[_POINTER] * 3, _INT], None),
    "jf_quantized_bytes": ([_INT, _LONG, _LONG], _LONG),
    "jf_pack_quantized": ([_POINTER, _INT, _LONG, _LONG, _LONG, _POINTER, _INT], None),
    "jf_pack_int8": ([_POINTER, _INT, _LONG, _LONG, _LONG, _POINTER, _INT], _LONG),
    "jf_read": ([_POINTER, _LONG, _INT], _LONG),
    "jf_look_up": ([_POINTER, _POINTER, _LONG, _POINTER, _INT, _INT], None),
    "jf_post_attention": ([_POINTER, _INT, _LONG, *[_POINTER] * 4, _INT], None),
    "jf_layers": ([_POINTER, _LONG, _LONG, *[_POINTER] * 5, _INT], _INT),
    "jf_attention_new": ([_INT, _INT, _POINTER, _INT, _POINTER, _INT], _POINTER),
    "jf_attention_free": ([_POINTER], None),
    "jf_attention_plan": ([_POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER], _POINTER),
    "jf_attention_plan_free": ([_POINTER], None),
    "jf_attention_plan_shared": ([_POINTER, _INT, _POINTER, _POINTER], None),
    "jf_attention_attend": (
        [_POINTER, _POINTER, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _LONG, _POINTER],
        None,
    ),
}
"""Function -> argument types and result, as csrc/api.h, csrc/attention.h and csrc/layers.h declare them."""


class NativeLibraryMissing(Exception):
    """There is no library, or it cannot be used. The text says why and what to do."""


@cache
def library() -> ctypes.CDLL:
    """The loaded library, at the level that the environment asks for. Raises NativeLibraryMissing."""
    if not _LIBRARY.exists():
        why = _REASON.read_text().strip() if _REASON.exists() else f"{_LIBRARY} does not exist"
        raise NativeLibraryMissing(
            f"the native library was not built: {why}; install a C++ compiler and reinstall jackfield-ops-cpu"
        )
    try:
        loaded = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise NativeLibraryMissing(f"the native library cannot be loaded: {error}") from error
    for name, (arguments, result) in SIGNATURES.items():
        try:
            function = getattr(loaded, name)
        except AttributeError as error:
            raise NativeLibraryMissing(
                f"{_LIBRARY} is older than this package: it has no {name}; reinstall jackfield-ops-cpu"
            ) from error
        function.argtypes, function.restype = arguments, result
    if (sources := source_digest(_PACKAGE.parent)) is not None and sources != loaded.jf_digest().decode():
        raise NativeLibraryMissing(
            f"{_LIBRARY} was built from other sources than those beside it; run `python {_PACKAGE.parent / 'build_native.py'}`"
        )
    if wanted := os.environ.get(LEVEL_VARIABLE):
        use_level(loaded, wanted)
    return loaded


def use_level(loaded: ctypes.CDLL, level: str) -> None:
    """Force a level. Raises NativeLibraryMissing for one that is unknown or that this processor lacks."""
    if level not in LEVELS:
        raise NativeLibraryMissing(f"{LEVEL_VARIABLE}={level!r} is no level; the levels are {', '.join(LEVELS)}")
    if not loaded.jf_use_level(level.encode()):
        raise NativeLibraryMissing(
            f"{LEVEL_VARIABLE}={level!r}: this processor has no more than {loaded.jf_level().decode()!r}"
        )


def level() -> str:
    """The level in use. Raises NativeLibraryMissing."""
    name: bytes = library().jf_level()
    return name.decode()
