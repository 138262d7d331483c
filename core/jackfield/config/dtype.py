"""Which dtype a run uses, and why. Knows names of dtypes as torch spells them; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.config.device import DeviceDescription
from jackfield.config.errors import ConfigurationError

RUN_DTYPES = ("float32", "float16", "bfloat16")
KV_DTYPES = (*RUN_DTYPES, "fp8_e4m3", "fp8_e5m2")

_BFLOAT16_SINCE = (8, 0)
"""First CUDA compute capability with bfloat16 arithmetic."""


def checkpoint_dtype(config: Mapping[str, Any], source: str) -> str | None:
    """The dtype that a configuration names (`dtype`, or `torch_dtype` in older files), as torch spells it; else None.

    Raises ConfigurationError if the entry is no name.
    """
    value = config.get("dtype")
    name = "dtype"
    if value is None:
        value, name = config.get("torch_dtype"), "torch_dtype"
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{source}: the entry {name!r} is {value!r}, not the name of a dtype")
    word = value.removeprefix("torch.")
    return {"half": "float16", "float": "float32"}.get(word, word)


def resolve_dtype(requested: str, checkpoint: str | None, device: DeviceDescription) -> tuple[str, str]:
    """(dtype of the run, the reason in words).

    requested    "auto" or one of RUN_DTYPES
    checkpoint   what `checkpoint_dtype` gave

    "auto" is the checkpoint's own dtype on every device: a run never computes in another type than the one that was
    trained and published without being told to. Raises ConfigurationError for what the device or this version cannot.
    """
    if requested != "auto":
        chosen, reason = requested, "named by --dtype"
        if checkpoint is not None and checkpoint != requested:
            reason += f"; the checkpoint is {checkpoint}"
    elif checkpoint is None:
        chosen, reason = "float32", "the model's configuration names no dtype, which means float32"
    elif checkpoint in RUN_DTYPES:
        chosen, reason = checkpoint, "the checkpoint's dtype"
        if checkpoint == "float16" and device.type == "cpu":
            reason += "; on a CPU --dtype bfloat16 or float32 may be faster"
    else:
        raise ConfigurationError(
            f"the checkpoint's dtype is {checkpoint}, in which this version does not compute; name one with --dtype "
            f"({', '.join(RUN_DTYPES)})"
        )
    if chosen == "bfloat16" and device.type == "cuda" and (device.capability or _BFLOAT16_SINCE) < _BFLOAT16_SINCE:
        capability = ".".join(str(part) for part in device.capability or ())
        raise ConfigurationError(
            f"bfloat16 ({reason}) needs compute capability 8.0, and {device.name} has {capability}; use --dtype float16"
        )
    return chosen, reason


def resolve_kv_dtype(requested: str, dtype: str | None) -> str | None:
    """The dtype of the KV cache where it is another than the run's, else None.

    requested   "auto" or one of KV_DTYPES
    dtype       of the run; None: not known yet, and then a dtype in which runs compute counts as the run's
    """
    same = requested in ("auto", dtype) or (dtype is None and requested in RUN_DTYPES)
    return None if same else requested
