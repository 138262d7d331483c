"""The random numbers of a draw: hashes of (seed, position, token id), free of any state and of a row's neighbours.

A provider of operators takes its noise from here, so that every provider draws the same tokens. It knows nothing of
logits, nor of what is done with the numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31

_ALL = (1 << 64) - 1
_FRACTION = (1 << 52) - 1
_ONE = 0x3FF << 52  # the bits of 1.0


def streams(seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64 [n]: the 64 bits of a hash of (seed, position), on the host, from uint64 [n] and int64 [n].

    The seed is mixed before the position is added, so that neighbouring seeds do not give shifted sequences.
    """
    golden = np.uint64(_GOLDEN)
    counters = (positions.astype(np.uint64) + np.uint64(1)) * golden
    return _mix(_mix(seeds.astype(np.uint64) + golden) + counters).view(np.int64)


def uniforms(stream: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """float64 [n, m] in (0, 1): the number of each token id in each stream; int64 [n], int64 [m] or [n, m].

    The hash is `mix(stream + (id + 1) * golden)` in 64 bits, mix being the finaliser of splitmix64 (Steele, Lea and
    Flood 2014); the number is `((hash >> 12) + 0.5) / 2**52`, a multiple of 2**-53 that is never 0 or 1.

    Needs one more temporary of the result's size. Every device gives the same bits.
    """
    bits = stream[:, None] + (ids + 1) * _signed(_GOLDEN)
    shifted = torch.empty_like(bits)
    for shift, factor in _ROUNDS:
        _xor_shifted(bits, shift, shifted)
        bits.mul_(_signed(factor))  # int64 wraps, as uint64 does
    _xor_shifted(bits, _LAST_SHIFT, shifted)
    # The bits become the fraction of a float64 in [1, 2): exact, and no conversion. The difference is exact too.
    bits.bitwise_right_shift_(12).bitwise_and_(_FRACTION).bitwise_or_(_ONE)
    return bits.view(torch.float64).sub_(1 - 2.0**-53)


class HostNoise:
    """The same numbers for the ids of one vocabulary, with NumPy and for one stream at a time. Not to be used by two threads.

    offsets   uint64 [vocab]: what an id adds to its stream before the mixing
    """

    def __init__(self, vocab_size: int) -> None:
        self.offsets: NDArray[np.uint64] = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(_GOLDEN)

    def hashes(self, stream: int, offsets: NDArray[np.uint64], out: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Of some of `offsets` [m], in `out` [m]; stream: an int64 or its bits."""
        np.add(offsets, np.uint64(stream & _ALL), out=out)
        shifted = np.empty_like(out)
        for shift, factor in _ROUNDS:
            np.right_shift(out, np.uint64(shift), out=shifted)
            np.bitwise_xor(out, shifted, out=out)
            np.multiply(out, np.uint64(factor), out=out)
        np.right_shift(out, np.uint64(_LAST_SHIFT), out=shifted)
        return np.bitwise_xor(out, shifted, out=out)

    def uniforms(self, stream: int, ids: NDArray[np.integer]) -> NDArray[np.float64]:
        """float64 [m] of these ids [m]."""
        offsets = self.offsets[ids]
        return uniforms_of(self.hashes(stream, offsets, offsets))


def uniforms_of(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The numbers that hashes stand for: exact, as `uniforms` makes them."""
    return ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _xor_shifted(bits: torch.Tensor, shift: int, shifted: torch.Tensor) -> None:
    torch.bitwise_right_shift(bits, shift, out=shifted)
    shifted.bitwise_and_((1 << (64 - shift)) - 1)  # the shift of an int64 copies the sign; the hash wants zeros
    bits.bitwise_xor_(shifted)


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in _ROUNDS:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(_LAST_SHIFT))


def _signed(value: int) -> int:
    """The int64 with the bits of this uint64."""
    return value - (1 << 64) if value >> 63 else value
