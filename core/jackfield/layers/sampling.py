"""Drawing tokens from logits. It knows nothing of requests, seeds or positions: each row brings its random stream.

A draw is an exponential race: token j has an exponential time E_j from its own random number, and the largest p_j / E_j
wins, which happens with probability p_j. It has two advantages over an inverse CDF. Rounding that differs between a batch
and a row alone moves the sum before every token, and so all the borders of a CDF; here it matters only where the two
best tie. And the probabilities need neither an order nor a sum, so what a filter leaves is drawn in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from jackfield.hookspecs import SamplingGroups, SamplingRows
from jackfield.layers.host_sampling import sample_on_host
from jackfield.layers.noise import uniforms
from jackfield.layers.sampling_filters import drop_top

Drop = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]

_AT_ONCE = 1 << 24  # elements: enough to fill a GPU, while float64 temporaries stay at 128 MiB


def sample(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """float32 [n, vocab] -> int64 [n]; -1 where a row's logits hold a NaN or +inf or nothing finite."""
    return sample_on_host(logits, rows) if logits.device.type == "cpu" else sample_on_device(logits, rows)


def sample_on_device(logits: torch.Tensor, rows: SamplingRows, *, drop: Drop = drop_top) -> torch.Tensor:
    """The same in operations over whole batches, which fit any device, and a GPU best. drop: does what `drop_top` does."""
    largest, tokens = logits.max(dim=-1)  # NaN wins a maximum, so this one reduction finds every broken row
    if not rows.greedy:
        vocab = logits.shape[-1]
        ids = torch.arange(vocab, device=logits.device)
        groups = rows.groups or groups_of(rows, vocab)
        for chosen, filtered in ((groups.plain, False), (groups.filtered, True)):
            for part in _parts(chosen, vocab):
                weights = _weights(logits, largest, rows, part)
                if filtered:
                    drop(weights, rows.top_k[part], rows.top_p[part])
                if groups.min_p:  # it changes nothing in the rows where it is off, but takes time
                    weights.masked_fill_(weights < rows.min_p[part, None], 0.0)
                tokens[part] = race(weights, uniforms(rows.stream[part], ids))
    return tokens.masked_fill(~torch.isfinite(largest), -1)


def groups_of(rows: SamplingRows, vocab: int) -> SamplingGroups:
    """For rows of which nobody said: asks the device, and waits."""
    draws = rows.temperature > 0
    filtered = draws & ((rows.top_k < vocab) | (rows.top_p < 1))
    return SamplingGroups(
        plain=(draws & ~filtered).nonzero().squeeze(-1),
        filtered=filtered.nonzero().squeeze(-1),
        most_top_k=max(torch.where(filtered, rows.top_k, 0).tolist(), default=0),
        min_p=bool((draws & (rows.min_p > 0)).any()),
    )


def _parts(indices: torch.Tensor, vocab: int) -> Iterator[torch.Tensor]:
    """Indices of rows, as many at once as their temporaries allow."""
    step = max(1, _AT_ONCE // vocab)
    for start in range(0, indices.numel(), step):
        yield indices[start : start + step]


def _weights(logits: torch.Tensor, largest: torch.Tensor, rows: SamplingRows, part: torch.Tensor) -> torch.Tensor:
    """Probabilities relative to the largest, whose weight is exactly 1: float32 [m, vocab]."""
    temperature = rows.temperature[part].clamp_min(torch.finfo(torch.float32).tiny)
    # shifted by the maximum first, so that no temperature, however small, makes an infinity
    return logits[part].sub_(largest[part, None]).div_(temperature[:, None]).exp_()


def race(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """int64 [n]: the arg max of weight / -log(uniform), the lowest id of equals. Overwrites `uniform` float64 [n, m].

    A token of weight 0 has a score of 0, and the heaviest token's score is above that, so no such token is drawn.
    """
    logs = uniform.log_()  # float64: float32 next to 1 is too coarse for unlikely tokens
    return weights.double().div_(logs).argmin(dim=-1)  # the least, as the logs are negative
