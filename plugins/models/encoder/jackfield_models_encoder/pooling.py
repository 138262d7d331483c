"""One vector out of each text's hidden states, by sentence-transformers' poolings. Computed in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def pool(hidden: torch.Tensor, starts: torch.Tensor, modes: Sequence[str]) -> torch.Tensor:
    """hidden [total, d], starts int64 [m + 1] -> float32 [m, d * modes], the modes one behind the other."""
    return torch.cat([_one(hidden, starts, mode) for mode in modes], dim=-1)


def _one(hidden: torch.Tensor, starts: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "cls":
        return hidden.index_select(0, starts[:-1]).float()
    if mode == "lasttoken":
        return hidden.index_select(0, starts[1:] - 1).float()
    lengths = starts.diff()
    x = hidden.float()
    if mode == "max":
        return torch.segment_reduce(x, "max", lengths=lengths, axis=0)
    if mode == "weightedmean":  # the i-th token counts i times
        place = torch.arange(1, len(x) + 1, device=x.device) - torch.repeat_interleave(starts[:-1], lengths)
        total = torch.segment_reduce(x * place[:, None], "sum", lengths=lengths, axis=0)
        return total / (lengths * (lengths + 1) / 2)[:, None]
    total = torch.segment_reduce(x, "sum", lengths=lengths, axis=0)
    counts = lengths if mode == "mean" else lengths.sqrt()
    return total / counts[:, None]
