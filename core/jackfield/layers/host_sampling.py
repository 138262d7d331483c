"""Drawing tokens on a CPU, row by row, with NumPy: what `sampling` draws on any device, at a tenth of its cost.

It pays to look at few tokens. What top-k, top-p and min-p leave stands among the heaviest, and where a set of all tokens above
some weight proves where the prefix ends, only these are sorted and drawn from. Without a filter every token may win the
race; but one number a token, made of a hash, tells of nearly all that they lose, and no logarithm is taken of them.

NumPy and not torch: one thread, whatever torch is allowed, for torch's would wake at so many elements and then spin beside
whoever computes next; and at a call on one row it takes a fraction of torch's time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import SamplingRows
from jackfield.layers.noise import HostNoise, uniforms_of
from jackfield.layers.sampling_filters import DOUBT, drop_top

_LEAST_WEIGHTS = (2.0**-8, 2.0**-12, 2.0**-16, 2.0**-32, 0.0)
"""Of the sets of heaviest tokens that are tried in turn; all tokens that weigh anything are the last."""
_CHUNK = 1 << 13  # tokens whose hashes are looked at together: the temporaries stay in a core's first caches
_SLACK = 4e-7  # float32's rounding in the sum that tells whether a token may win
_MANY = 2048  # tokens, of which some are too near to any limit for `_ROUNDED`: it is not even tried
_ROUNDED = 4e-6  # more than a pairwise float32 sum of any vocabulary is away from the exact one
_TINY = np.finfo(np.float32).tiny


def sample_on_host(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """As `sampling.sample`, of logits on a CPU."""
    n, vocab = logits.shape
    table = logits.numpy()
    tokens = np.empty(n, dtype=np.int64)
    for i in range(n):
        tokens[i] = table[i].argmax()  # the first NaN, if there is one
    largest = table[np.arange(n), tokens]
    broken = ~np.isfinite(largest)
    if not rows.greedy:
        row = _Row(vocab)
        columns = (rows.temperature, rows.top_k, rows.top_p, rows.min_p, rows.stream)
        parameters = zip(*(column.tolist() for column in columns), strict=True)
        with np.errstate(
            over="ignore", under="ignore"
        ):  # a tiny temperature makes minus infinities, and so weights of 0
            for i, (temperature, top_k, top_p, min_p, stream) in enumerate(parameters):
                if temperature > 0 and not broken[i]:
                    row.weigh(table[i], largest[i], temperature)
                    tokens[i] = row.draw(int(tokens[i]), top_k, top_p, min_p, stream)
    tokens[broken] = -1
    return torch.from_numpy(tokens)


class _Row:
    """One row at a time. weights   float32 [vocab]: probabilities relative to the largest, whose weight is exactly 1"""

    def __init__(self, vocab: int) -> None:
        self.weights: NDArray[np.float32] = np.empty(vocab, dtype=np.float32)
        self._noise = _noise(vocab)

    def weigh(self, logits: NDArray[np.float32], largest: np.float32, temperature: float) -> None:
        """float32 [vocab]; shifted by the maximum first, so that no temperature, however small, makes an infinity."""
        np.subtract(logits, largest, out=self.weights)
        np.divide(self.weights, max(np.float32(temperature), _TINY), out=self.weights)
        np.exp(self.weights, out=self.weights)

    def draw(self, heaviest: int, top_k: int, top_p: float, min_p: float, stream: int) -> int:
        """heaviest: the id of the first token of weight 1."""
        filtered = top_k < len(self.weights) or top_p < 1
        if not filtered and min_p <= 0:
            return self._race_of_all(heaviest, stream)
        ids = self._tops(top_k, top_p) if filtered else np.flatnonzero(self.weights >= np.float32(min_p))
        weights = self.weights[ids]
        if filtered and min_p > 0:
            kept = weights >= np.float32(min_p)
            ids, weights = ids[kept], weights[kept]
        if len(ids) == 1:
            return int(ids[0])
        scores = weights.astype(np.float64) / np.log(self._noise.uniforms(stream, ids))
        return int(ids[scores.argmin()])  # the least, as the logarithms are negative

    def _tops(self, top_k: int, top_p: float) -> NDArray[np.intp]:
        """The ids that top-k and top-p leave, ascending."""
        if top_p >= 1:
            found = self._prefix(top_k, np.inf, 0.0)
        else:
            found = self._prefix(top_k, float(np.add.reduce(self.weights)) * top_p, _ROUNDED)
            if found is None:
                found = self._prefix(top_k, float(np.add.reduce(self.weights, dtype=np.float64)) * top_p, DOUBT)
        return self._tops_of_all(top_k, top_p) if found is None else found

    def _prefix(self, top_k: int, limit: float, doubt: float) -> NDArray[np.intp] | None:
        """The ids, ascending, of at most `top_k` tokens, while those before them weigh at most `limit`. None: a weight is so near
        to it, `doubt` of it, that another order of adding could decide."""
        for least in _LEAST_WEIGHTS:
            ids = np.flatnonzero(self.weights >= np.float32(least) if least else self.weights > 0)
            weights = self.weights[ids]
            ends = len(ids) > top_k or float(np.add.reduce(weights, dtype=np.float64)) > limit * (1 + doubt)
            if ends or not least:
                break
        if doubt == _ROUNDED and len(ids) > _MANY:
            return None
        beyond = len(ids) - top_k
        # The prefix, in falling order, and one token behind it where there is one.
        ordered = np.sort(np.partition(weights, beyond - 1)[beyond - 1 :] if beyond > 0 else weights)[::-1]
        up_to = np.cumsum(ordered, dtype=np.float64)
        before = up_to - ordered
        if doubt and np.count_nonzero(np.abs(before - limit) < doubt * limit):
            return None
        count = min(int(np.count_nonzero(before <= limit)), top_k)
        edge = ordered[count - 1]
        above, equals = int(np.count_nonzero(ordered > edge)), np.flatnonzero(weights == edge)
        stay: NDArray[np.bool_] = weights >= edge
        stay[equals[count - above :]] = False  # of equals the lower ids
        left: NDArray[np.intp] = ids[stay]
        return left

    def _tops_of_all(self, top_k: int, top_p: float) -> NDArray[np.intp]:
        """The same where the order of adding might decide: in the order in which every device adds."""
        kept = torch.from_numpy(self.weights.copy())[None]
        drop_top(kept, torch.tensor([top_k], dtype=torch.int32), torch.tensor([top_p], dtype=torch.float32))
        return np.flatnonzero(kept.numpy()[0])

    def _race_of_all(self, heaviest: int, stream: int) -> int:
        """The winner among all tokens.

        A token beats a score of s only if its weight over -log(u) does, and -log(u) is more than 1 - u: so only if
        u + weight / s is more than 1. This is looked at with the upper half of the hash for u, in float32.
        """
        noise, weights = self._noise, self.weights
        (first,) = noise.uniforms(stream, np.array([heaviest]))
        best, winner = -1 / np.log(first), heaviest
        bits = np.empty(_CHUNK, dtype=np.uint64)
        upper, sums = np.empty(_CHUNK, dtype=np.float32), np.empty(_CHUNK, dtype=np.float32)
        for start in range(0, len(weights), _CHUNK):
            part = weights[start : start + _CHUNK]
            m = len(part)
            hashes = noise.hashes(stream, noise.offsets[start : start + m], bits[:m])
            np.right_shift(hashes, np.uint64(32), out=upper[:m], casting="unsafe")
            upper[:m] *= np.float32(2.0**-32)
            np.multiply(part, np.float32(1 / best), out=sums[:m])
            sums[:m] += upper[:m]
            may = np.flatnonzero(sums[:m] >= np.float32(1 - _SLACK))
            if not len(may):
                continue
            scores = part[may].astype(np.float64) / -np.log(uniforms_of(hashes[may]))
            at = int(scores.argmax())
            token = start + int(may[at])
            if scores[at] > best or (scores[at] == best and token < winner):
                best, winner = scores[at], token
        return winner


@lru_cache(maxsize=4)
def _noise(vocab: int) -> HostNoise:
    return HostNoise(vocab)
