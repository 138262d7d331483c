"""top-k and top-p over the weights of all tokens.

Both keep a prefix of the tokens in descending order of weight, of equals the lower ids first. So what has to be found is
where that prefix ends, and for that no order of all ids is needed. It knows nothing of temperatures, seeds or draws.
"""

from __future__ import annotations

import numpy as np
import torch

DOUBT = 1e-9
"""Of a sum: far more than float64 sums in another order differ by, for any vocabulary."""


def drop_top(weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> None:
    """Set to 0 what top-k and top-p drop: weights float32 [m, vocab] >= 0, top_k int32 [m] >= 1, top_p float32 [m].

    top-p keeps a token while the share of those before it is at most top_p, so the first one always stays.
    """
    drop_by_order(weights, _descending(weights), top_k, top_p)


def drop_by_order(weights: torch.Tensor, ordered: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> None:
    """`drop_top` for who has the order: `ordered` float32 [m, c], the c largest weights of each row, largest first, where no
    top_k is above c or c is the whole vocabulary."""
    before = ordered.cumsum(dim=-1, dtype=torch.float64)
    whole = ordered.shape[-1] == weights.shape[-1]
    total = before[:, -1:] if whole else weights.sum(dim=-1, keepdim=True, dtype=torch.float64)
    limit = total * top_p[:, None]  # the weights' sum is not 1
    kept = (~_dropped(ordered, before, limit, top_k)).sum(dim=-1, keepdim=True)
    edge = ordered.gather(-1, kept - 1)  # the last weight that is kept, perhaps by some of its equals only
    equals = weights == edge
    room = kept - (ordered > edge).sum(dim=-1, keepdim=True)
    weights.masked_fill_((weights < edge) | (equals & (equals.cumsum(dim=-1) > room)), 0.0)


def _dropped(ordered: torch.Tensor, before: torch.Tensor, limit: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """By rank, bool [m, c]. `before` holds the sums up to and with each rank, and is overwritten."""
    rank = torch.arange(ordered.shape[-1], device=ordered.device)
    return (before.sub_(ordered) > limit) | (rank >= top_k[:, None])


def _descending(weights: torch.Tensor) -> torch.Tensor:
    """Values only. NumPy sorts them four times as fast as torch, which sorts their indices too."""
    if weights.device.type != "cpu":
        return weights.sort(dim=-1, descending=True).values
    return torch.from_numpy(np.sort(weights.numpy(), axis=-1)).flip(-1)
