"""The slow twin of `Ops.sample`: one row at a time in Python's floats, as its docstring defines it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from jackfield.hookspecs import SamplingRows

OFF = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The sampling parameters of one row; the defaults are off. stream: 64 random bits as an int64."""

    temperature: float = 1.0
    top_k: int = OFF
    top_p: float = 1.0
    min_p: float = 0.0
    stream: int = 0

    def over(self, streams: Sequence[int]) -> list[Draw]:
        """The same row with other random bits, once for each."""
        return [replace(self, stream=stream) for stream in streams]


def sampling_rows(draws: Sequence[Draw], device: str = "cpu") -> SamplingRows:
    """One batch of rows."""

    def column(values: list[float] | list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return SamplingRows(
        temperature=column([draw.temperature for draw in draws], torch.float32),
        top_k=column([draw.top_k for draw in draws], torch.int32),
        top_p=column([draw.top_p for draw in draws], torch.float32),
        min_p=column([draw.min_p for draw in draws], torch.float32),
        stream=column([draw.stream for draw in draws], torch.int64),
        greedy=all(draw.temperature == 0 for draw in draws),
    )


def some_streams(count: int, seed: int = 0) -> list[int]:
    """Numbers spread over all 64 bits."""
    found: list[int] = torch.randint(
        -(2**63), 2**63 - 1, (count,), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    return found


def exponential(stream: int, token: int) -> float:
    """-log of the token's number: `jackfield.layers.noise.uniforms` in Python's integers."""
    mask = 2**64 - 1
    z = (stream + (token + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return -math.log((((z ^ (z >> 31)) >> 12) + 0.5) / 2**52)


def survivors(logits: Sequence[float], draw: Draw) -> tuple[dict[int, float], float]:
    """(probability of each token that the filters leave, distance of the nearest token from a filter's edge)."""
    largest = max(logits)
    weights = [math.exp((x - largest) / draw.temperature) for x in logits]
    total = math.fsum(weights)
    probs = [weight / total for weight in weights]
    order = sorted(range(len(probs)), key=lambda i: -logits[i])
    top, before, margin = probs[order[0]], 0.0, math.inf
    kept: dict[int, float] = {}
    for rank, i in enumerate(order):
        if rank and draw.top_p < 1:
            margin = min(margin, abs(before - draw.top_p))
        if rank and draw.min_p > 0:
            margin = min(margin, abs(probs[i] - draw.min_p * top))
        if rank < draw.top_k and before <= draw.top_p and probs[i] >= draw.min_p * top:
            kept[i] = probs[i]
        before += probs[i]
    return kept, margin


def twin(logits: Sequence[float], draw: Draw) -> tuple[int, float]:
    """(token, distance of the nearest decision from its edge). Nearer to one than 1e-5, float32 may fall on either side."""
    if draw.temperature == 0:
        return max(range(len(logits)), key=lambda i: (logits[i], -i)), math.inf
    kept, margin = survivors(logits, draw)
    scores = {i: prob / exponential(draw.stream, i) for i, prob in kept.items()}
    first, *others = sorted(scores, key=lambda i: -scores[i])
    if others:
        margin = min(margin, 1 - scores[others[0]] / scores[first])
    return first, margin
