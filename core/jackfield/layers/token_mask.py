"""Grammars' token masks on logits: what may not come gets minus infinity. Touches the masked rows alone, and a packed mask
crosses to the device as it is, a bit a token."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import TokenMasks
from jackfield.layers.to_device import to_device

_NEVER = float("-inf")


def apply_masks(logits: torch.Tensor, rows: NDArray[np.int32], masks: TokenMasks) -> None:
    """Change float32 [m, vocab] in place; rows int32 [m]: whose each line is. Raises ValueError for a mask of a row that is not
    among them, or of another size."""
    vocab = logits.shape[1]
    order = np.argsort(rows)
    at = order[np.minimum(np.searchsorted(rows, masks.rows, sorter=order), len(rows) - 1)]
    if (rows[at] != masks.rows).any():
        raise ValueError(
            f"a token mask for a row that is not sampled in this step: {masks.rows[rows[at] != masks.rows]}"
        )
    if masks.bits.shape != (len(masks.rows), -(-vocab // 32)) or masks.bits.dtype != np.uint32:
        raise ValueError(
            f"token masks are {masks.bits.dtype} {masks.bits.shape}; {len(masks.rows)} rows of {vocab} tokens were expected"
        )
    if logits.device.type == "cpu":
        # Views of single rows: no row is copied, and a neighbour without a mask costs nothing.
        shut = np.unpackbits(~masks.bits.view(np.uint8), axis=1, bitorder="little", count=vocab).view(np.bool_)
        for line, mask in zip(at.tolist(), torch.from_numpy(shut), strict=True):
            logits[line].masked_fill_(mask, _NEVER)
        return
    words = to_device(masks.bits.view(np.int32), logits.device)
    places = torch.arange(32, dtype=torch.int32, device=logits.device)
    shut_there = ((words[:, :, None] >> places) & 1 == 0).flatten(1)[:, :vocab]
    index = to_device(at, logits.device)
    logits[index] = logits[index].masked_fill(shut_there, _NEVER)
