"""Rotary position embedding: inverse frequencies of every rope type, the table of angles, and the turn itself.

One position has one rotation for the whole run. transformers recomputes `dynamic` and `longrope` from the length of each
forward, so that a token's key would depend on its batch, its chunk and what was cached; here these two are set once for
the run's context length. With a run no longer than the original context they equal transformers' short form; beyond it
they equal what transformers computes for a sequence of exactly the run's length.
"""

from __future__ import annotations

import math

import torch

from jackfield.layers.rope_config import RopeConfig


def inverse_frequencies(rope: RopeConfig, *, max_context: int) -> tuple[torch.Tensor, float]:
    """(float32 [rotary / 2] radians a position, factor on cos and sin). Computed in float32 as transformers does."""
    match rope.rope_type:
        case "default":
            return _plain(rope.theta, rope.rotary_size), 1.0
        case "linear":
            return _plain(rope.theta, rope.rotary_size) / rope.factor, 1.0
        case "dynamic":
            return _dynamic(rope, max_context), 1.0
        case "yarn":
            return _yarn(rope), _yarn_attention_factor(rope)
        case "llama3":
            return _llama3(rope), 1.0
        case "longrope":
            return _longrope(rope, max_context), _longrope_attention_factor(rope)
    raise AssertionError(f"rope type {rope.rope_type!r} was let through by parse_rope")


def _exponents(rotary_size: int) -> torch.Tensor:
    return torch.arange(0, rotary_size, 2, dtype=torch.float32) / rotary_size


def _plain(theta: float | torch.Tensor, rotary_size: int) -> torch.Tensor:
    return 1.0 / (theta ** _exponents(rotary_size))


def _dynamic(rope: RopeConfig, max_context: int) -> torch.Tensor:
    """NTK scaling: the base grows with the length beyond the original context."""
    if max_context <= rope.max_position:
        return _plain(rope.theta, rope.rotary_size)
    # the length as a tensor, so that the base is rounded to float32 where transformers rounds it
    stretch = rope.factor * torch.tensor(max_context) / rope.max_position - (rope.factor - 1)
    theta = rope.theta * stretch ** (rope.rotary_size / (rope.rotary_size - 2))
    return _plain(theta, rope.rotary_size)


def _yarn(rope: RopeConfig) -> torch.Tensor:
    """High frequencies stay, low ones are interpolated, with a linear ramp between (https://arxiv.org/abs/2309.00071)."""
    size = rope.rotary_size

    def dimension_of(rotations: float) -> float:
        """The dimension that makes this many full turns over the original context."""
        return size * math.log(rope.original_max / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    if low == high:
        high += 0.001  # the ramp must not divide by zero

    positions = rope.theta ** _exponents(size)
    extrapolated, interpolated = 1.0 / positions, 1.0 / (rope.factor * positions)
    ramp = ((torch.arange(size // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    keep = 1 - ramp
    return interpolated * (1 - keep) + extrapolated * keep


def _yarn_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def mscale(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.mscale) / mscale(rope.mscale_all_dim)
    return mscale(1.0)


def _llama3(rope: RopeConfig) -> torch.Tensor:
    """Long wavelengths are stretched by the factor, short ones stay, the band between is blended."""
    inv_freq = _plain(rope.theta, rope.rotary_size)
    longest, shortest = rope.original_max / rope.low_freq_factor, rope.original_max / rope.high_freq_factor
    wavelength = 2 * math.pi / inv_freq
    stretched = torch.where(wavelength > longest, inv_freq / rope.factor, inv_freq)
    smooth = (rope.original_max / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - smooth) * stretched / rope.factor + smooth * stretched
    return torch.where((wavelength < shortest) | (wavelength > longest), stretched, blended)


def _longrope(rope: RopeConfig, max_context: int) -> torch.Tensor:
    factors = rope.long_factor if max_context > rope.original_max else rope.short_factor
    return 1.0 / (torch.tensor(factors, dtype=torch.float32) * rope.theta ** _exponents(rope.rotary_size))


def _longrope_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max))


class RotaryTable:
    """cos and sin of every position of the run: float32 [max_context, 2, rotary / 2]. Implements `Rotary`."""

    def __init__(self, rope: RopeConfig, *, max_context: int, device: str) -> None:
        self.rope = rope
        inv_freq, factor = inverse_frequencies(rope, max_context=max_context)
        angles = torch.arange(max_context, dtype=torch.float32)[:, None] * inv_freq
        self.table = torch.stack((angles.cos() * factor, angles.sin() * factor), dim=1).to(device)

    def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """int64 [n] below the run's context length -> cos, sin, float32 [n, rotary / 2] each."""
        cos, sin = self.table[positions].unbind(1)
        return cos, sin


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn the leading dimensions of every head; [n, heads, head_size] with cos, sin [n, rotary / 2]. Computed in
    float32, returned in x's dtype, a new tensor."""
    half = cos.shape[-1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    first, second = x[..., :half].float(), x[..., half : 2 * half].float()
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
    return turned if 2 * half == x.shape[-1] else torch.cat((turned, x[..., 2 * half :]), dim=-1)
