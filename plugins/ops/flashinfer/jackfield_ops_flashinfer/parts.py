"""What of the operators can be FlashInfer's, and what its kernels want. Needs neither torch nor pydantic."""

from __future__ import annotations

from typing import Literal

Part = Literal["norm", "rotary", "activation", "top_k"]
PARTS: tuple[Part, ...] = ("norm", "rotary", "activation", "top_k")
ROTARY_HEADS = {64: 8, 128: 8, 256: 8, 512: 16}
"""Head size -> numbers that a thread of the rotary kernel turns at once; half of what turns must be a multiple of them.
`BatchQKApplyRotaryPosIdsCosSinCache` of FlashInfer 0.7.4."""
ACTIVATIONS = {"silu": "silu_and_mul", "gelu": "gelu_and_mul", "gelu_tanh": "gelu_tanh_and_mul"}
"""The contract's names and FlashInfer's functions."""
MOST_LARGEST = 1024
"""Weights of a row that are selected; beyond it a sort is no slower."""
LEAST_CAPABILITY = (8, 0)
LEAST_VERSION = (0, 7, 4)
