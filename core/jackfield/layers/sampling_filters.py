"""top-k and top-p over weights: over the few heaviest tokens where these prove the answer, else over the vocabulary.

Both keep a prefix of the tokens in descending order of weight, of equals the lower ids first. So what has to be found is
where that prefix ends, and for that no order of all ids is needed. It knows nothing of temperatures, seeds or draws.
"""

from __future__ import annotations

import numpy as np
import torch

_SHARE = 64  # torch selects the k largest of n with a heap where 64 k <= n, a third as dear as beyond
_DOUBT = 1e-9  # of the sum: far more than float64 sums in another order differ by, for any vocabulary


def drop_top(weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> None:
    """Set to 0 what top-k and top-p drop: weights float32 [m, vocab] >= 0, top_k int32 [m] >= 1, top_p float32 [m].

    top-p keeps a token while the share of those before it is at most top_p, so the first one always stays.
    """
    ordered = _descending(weights)
    before = ordered.cumsum(dim=-1, dtype=torch.float64)
    limit = before[:, -1:] * top_p[:, None]  # the weights' sum is not 1
    kept = (~_dropped(ordered, before, limit, top_k)).sum(dim=-1, keepdim=True)
    edge = ordered.gather(-1, kept - 1)  # the last weight that is kept, perhaps by some of its equals only
    equals = weights == edge
    room = kept - (ordered > edge).sum(dim=-1, keepdim=True)
    weights.masked_fill_((weights < edge) | (equals & (equals.cumsum(dim=-1) > room)), 0.0)


def heaviest(
    weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `drop_top` would leave, over a few candidates: (their weights or 0 [m, c], ids int64 [m, c] ascending, proven).

    proven    bool [m]: whether nothing but these is left. It is not where the prefix ends beyond the candidates, among
              equals of the lightest of them, or so near to top_p that another order of adding could move it
    """
    found, ids = weights.topk(max(1, weights.shape[-1] // _SHARE), dim=-1, sorted=False)
    ids, by_id = ids.sort(dim=-1)
    found = found.gather(-1, by_id)
    ordered, by_weight = found.sort(dim=-1, descending=True, stable=True)
    limit = weights.sum(dim=-1, keepdim=True, dtype=torch.float64) * top_p[:, None]
    before = ordered.cumsum(dim=-1, dtype=torch.float64)
    doubt = ((before - ordered - limit).abs() < _DOUBT * limit) & (top_p < 1)[:, None]
    drop = _dropped(ordered, before, limit, top_k)
    lightest = ordered[:, -1:]
    # Down to the first of the lightest, ranks are those of the whole vocabulary; what weighs nothing is dropped anyway.
    known = (ordered > lightest).sum(dim=-1, keepdim=True)
    ends = drop.gather(-1, known) | (lightest == 0)
    proven = ends & ~doubt.any(dim=-1, keepdim=True)
    found = torch.zeros_like(found).scatter_(-1, by_weight, ordered.masked_fill_(drop, 0.0))
    return found, ids, proven.squeeze(-1)


def _dropped(ordered: torch.Tensor, before: torch.Tensor, limit: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """By rank, bool [m, c]. `before` holds the sums up to and with each rank, and is overwritten."""
    rank = torch.arange(ordered.shape[-1], device=ordered.device)
    return (before.sub_(ordered) > limit) | (rank >= top_k[:, None])


def _descending(weights: torch.Tensor) -> torch.Tensor:
    """Values only. NumPy sorts them four times as fast as torch, which sorts their indices too."""
    if weights.device.type != "cpu":
        return weights.sort(dim=-1, descending=True).values
    return torch.from_numpy(np.sort(weights.numpy(), axis=-1)).flip(-1)
