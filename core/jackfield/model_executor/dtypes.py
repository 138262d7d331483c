"""Names of element types as the contract writes them ("float32") and as torch has them."""

from __future__ import annotations

import torch


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name. ValueError if torch has none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no dtype named {name!r}")
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    """The contract's name of a torch dtype."""
    return str(dtype).removeprefix("torch.")
