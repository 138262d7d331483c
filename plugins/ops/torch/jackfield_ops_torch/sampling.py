"""Drawing tokens from logits. It knows nothing of requests, seeds or positions: each row brings its random number."""

from __future__ import annotations

import torch

from jackfield.hookspecs import SamplingRows


def sample(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """float32 [n, vocab] -> int64 [n]; -1 where a row's logits hold a NaN or +inf or nothing finite."""
    largest, best = logits.max(dim=-1)  # NaN wins a maximum, so this one reduction finds every broken row
    if rows.greedy:
        tokens = best
    else:
        tokens = torch.where(rows.temperature > 0, _draw(logits, largest, rows), best)
    return tokens.masked_fill(~torch.isfinite(largest), -1)


def _draw(logits: torch.Tensor, largest: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    # shifted by the maximum first, so that no temperature, however small, makes an infinity; greedy rows have 0 here
    temperature = rows.temperature.clamp_min(torch.finfo(torch.float32).tiny)
    probs = ((logits - largest[:, None]) / temperature[:, None]).softmax(dim=-1)

    # whether a row is filtered is its own affair: its draw must not change with its neighbours' parameters
    filtered = (rows.top_k < logits.shape[-1]) | (rows.top_p < 1) | (rows.min_p > 0)
    tokens = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    free = ~filtered
    tokens[free] = inverse_cdf(probs[free], rows.uniform[free])

    ordered, ids = probs[filtered].sort(dim=-1, descending=True, stable=True)
    kept = filter_sorted(ordered, rows.top_k[filtered], rows.top_p[filtered], rows.min_p[filtered])
    drawn = inverse_cdf(kept, rows.uniform[filtered])
    tokens[filtered] = ids.gather(-1, drawn[:, None]).squeeze(-1)
    return tokens


def filter_sorted(ordered: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Probabilities [n, vocab] in falling order with those that are filtered out set to 0, not renormalised.

    top-p keeps a token while the sum before it is at most top_p, so the first one always stays.
    """
    rank = torch.arange(ordered.shape[-1], device=ordered.device)
    before = ordered.double().cumsum(dim=-1) - ordered
    drop = rank >= top_k[:, None]
    drop |= before > top_p[:, None]
    drop |= ordered < ordered[:, :1] * min_p[:, None]
    return ordered.masked_fill(drop, 0.0)


def inverse_cdf(probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Index drawn from each row of weights [n, m] (their sum need not be 1) at uniform float64 [n] in [0, 1)."""
    cdf = probs.double().cumsum(dim=-1)
    # u < 1 keeps the target under the total even after rounding, so the token found always has weight
    drawn = torch.searchsorted(cdf, uniform[:, None] * cdf[:, -1:], right=True)
    return drawn.clamp_max(probs.shape[-1] - 1).squeeze(-1)  # a row of NaN finds nothing; its answer is not used
