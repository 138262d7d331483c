"""A tree mask as FlashInfer reads it: for each row a matrix [new tokens, tokens] of bits, row by row, the lowest bit of a byte
first. It imports no FlashInfer.

FlashInfer's own packing asks the device for the number of bytes. Here the host bounds them: a row's bits begin at a byte that
is known on the host, and only their pitch, the row's true length, is known to the device alone.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def mask_starts(q_lens: NDArray[np.int32], kv_lens: NDArray[np.int32]) -> NDArray[np.int32]:
    """int32 [n + 1]: the byte at which each row's bits begin, and the end. kv_lens: lengths or upper bounds of them."""
    starts = np.zeros(len(q_lens) + 1, dtype=np.int64)
    np.cumsum((q_lens.astype(np.int64) * kv_lens + 7) // 8, out=starts[1:])
    return starts.astype(np.int32)


def write_mask(
    into: torch.Tensor, starts: torch.Tensor, among: torch.Tensor, q_starts: torch.Tensor, kv_lens: torch.Tensor
) -> None:
    """Fill `into`, uint8 [at least starts[-1]].

    starts int32 [n + 1] as `mask_starts` gives them; among bool [total new, max_q]; q_starts int32 [n + 1]; kv_lens int64 [n],
    the true ones. What a row had before its new tokens is seen; so are bits that stand for nothing.
    """
    total, width = among.shape
    token = torch.arange(total, device=among.device)
    row = torch.searchsorted(q_starts.long(), token, right=True).sub_(1)
    query = token - q_starts.long()[row]
    new = q_starts.long().diff()[row]
    other = torch.arange(width, device=among.device)
    there = other < new[:, None]
    hidden = ~among & (other != query[:, None]) & there
    # Only the new tokens are ever hidden: their bits are taken from bytes of ones, several of one byte as a sum.
    bit = query[:, None] * kv_lens[row][:, None] + (kv_lens[row] - new)[:, None] + torch.where(there, other, 0)
    byte = starts.long()[row][:, None] + bit // 8
    taken = torch.zeros(into.shape[0], dtype=torch.int32, device=into.device)
    values = torch.where(hidden, 1 << (bit % 8), 0).int()
    taken.index_add_(0, byte.flatten(), values.flatten())
    into.copy_(255 - taken)
