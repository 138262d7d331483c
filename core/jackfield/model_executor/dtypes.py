"""Names of element types as the contract writes them ("float32", "fp8_e4m3") and as torch has them, and how keys and values
are stored in one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

_FP8: Mapping[str, torch.dtype] = MappingProxyType({"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2})
_FP8_NAMES = MappingProxyType({dtype: name for name, dtype in _FP8.items()})


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name. ValueError if torch has none."""
    dtype = _FP8.get(name) or getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype named {name!r}")
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """The contract's name of a torch dtype."""
    return _FP8_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def as_stored(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Keys or values as a KV cache of that dtype holds them: what is beyond its range becomes its largest finite value, NaN
    stays NaN. (What a plain cast makes of them differs between dtypes and devices.)"""
    if values.dtype == dtype:
        return values
    most = torch.finfo(dtype).max
    if most < torch.finfo(values.dtype).max:
        if values.dtype is torch.bfloat16 and dtype is torch.float16:
            values = values.float()  # bfloat16 has no 65504, and would clamp to 65536
        values = values.clamp(-most, most)
    return values.to(dtype)


def movable(pages: torch.Tensor) -> torch.Tensor:
    """The same memory for operations that pick and place elements: few of torch's know the types of one byte."""
    return pages.view(torch.uint8) if pages.dtype.itemsize == 1 else pages
