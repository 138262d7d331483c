"""Rotary scaling of a GGUF file as the `rope_parameters` of a Hugging Face config. Knows no tensor names.

llama.cpp stores Llama 3's scaling not as its four parameters but as the finished divisor of each frequency (the tensor
`rope_freqs.weight`); the parameters are found back from it and then checked against every divisor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield_models_loaders.gguf_metadata import Metadata

DEFAULT_THETA = 10000.0
FREQUENCY_TOLERANCE = 1e-4


def rope_parameters(
    metadata: Metadata, prefix: str, head_size: int, divisors: NDArray[np.float32] | None
) -> dict[str, Any]:
    """`prefix`: the architecture's, such as "llama"; `divisors`: float32 [head_size / 2] of `rope_freqs`, if there.

    Raises ModelSourceError for a scaling that cannot be expressed.
    """
    theta = metadata.number(f"{prefix}.rope.freq_base") or DEFAULT_THETA
    base: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    kind = metadata.text(f"{prefix}.rope.scaling.type") or "none"
    factor = metadata.number(f"{prefix}.rope.scaling.factor") or metadata.number(f"{prefix}.rope.scale_linear") or 0.0
    if kind == "none" and f"{prefix}.rope.scale_linear" in metadata and factor not in (0.0, 1.0):
        kind = "linear"  # how files of 2023 said it
    if divisors is not None:
        if kind not in ("none", "llama3"):
            metadata.fail(f"combines rope_freqs.weight with rope scaling {kind!r}, which is not supported")
        return base | _llama3(metadata, theta, head_size, divisors)
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return base
    if factor <= 0.0:
        metadata.fail(f"asks for rope scaling {kind!r} without a positive {prefix}.rope.scaling.factor")
    if kind == "linear":
        return base | {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return base | _yarn(metadata, prefix, factor)
    metadata.fail(f"asks for rope scaling {kind!r}; supported are none, linear, yarn and Llama 3's")


def _yarn(metadata: Metadata, prefix: str, factor: float) -> dict[str, Any]:
    key = f"{prefix}.rope.scaling"
    result: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": metadata.positive(f"{key}.original_context_length"),
    }
    for entry in ("beta_fast", "beta_slow"):
        value = metadata.number(f"{key}.yarn_{entry}")
        if value is not None:
            result[entry] = value
    extrapolation = metadata.number(f"{key}.yarn_ext_factor")
    if extrapolation is not None and extrapolation not in (-1.0, 1.0):  # -1: llama.cpp's "as the type says"
        metadata.fail(f"sets {key}.yarn_ext_factor to {extrapolation}; only 1 can be expressed")
    scale = metadata.number(f"{key}.attn_factor")
    if scale is not None and scale != 1.0:
        # llama.cpp multiplies YaRN's own magnitude by it; Hugging Face's entry replaces that magnitude
        result["attention_factor"] = scale * (0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0)
    return result


def _llama3(metadata: Metadata, theta: float, head_size: int, divisors: NDArray[np.float32]) -> dict[str, Any]:
    if divisors.shape != (head_size // 2,) or not np.isfinite(divisors).all() or divisors.min() < 0.999:
        metadata.fail(
            f"rope_freqs.weight does not hold {head_size // 2} divisors of at least 1; convert the model again"
        )
    found = divisors.astype(np.float64)
    per_token = theta ** (-np.arange(0, head_size, 2, dtype=np.float64) / head_size) / (2 * math.pi)
    factor = float(f"{found.max():.6g}")
    if factor <= 1.0:
        return {}
    # Between the two bounds 1/divisor = (1 - s)/factor + s, and s is linear in the rotations per token. The bounds and
    # the original context enter only as ratios, so low_freq_factor = 1 loses nothing.
    middle = (found > 1.0 + 1e-3) & (found < factor * (1.0 - 1e-3))
    if middle.sum() < 2:
        metadata.fail("rope_freqs.weight is not Llama 3's rope scaling; no other set of divisors is supported")
    smooth = (1.0 / found[middle] - 1.0 / factor) / (1.0 - 1.0 / factor)
    slope, intercept = np.polyfit(per_token[middle], smooth, 1)
    if slope <= 0.0 or intercept >= 0.0:
        metadata.fail("rope_freqs.weight is not Llama 3's rope scaling; no other set of divisors is supported")
    spread = -1.0 / intercept
    high = float(f"{1.0 + spread:.4g}")
    context = round(slope * (high - 1.0))
    expected = llama3_divisors(per_token, factor, 1.0, high, context)
    if np.abs(expected / found - 1.0).max() > FREQUENCY_TOLERANCE:
        metadata.fail("rope_freqs.weight is not Llama 3's rope scaling; no other set of divisors is supported")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }


def llama3_divisors(
    per_token: NDArray[np.float64], factor: float, low: float, high: float, context: float
) -> NDArray[np.float64]:
    """Llama 3's divisor of each frequency; `per_token`: rotations per token, float64 [n]."""
    smooth = np.clip((context * per_token - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)
