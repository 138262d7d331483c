"""Draws of tokens in two launches, without a sort and without waiting for the device."""

from __future__ import annotations

import torch
import triton

from jackfield.hookspecs import SamplingRows
from jackfield_ops_triton.kernels.race import race
from jackfield_ops_triton.kernels.survey import survey

ROOM = 4096
"""Tokens of a list; of a row that has more above its border the border is looked for in the whole row."""

_TILE, _FLAT = 8192, 1024
_LIST_TILE, _LIST_WAYS = 256, 32


def sample(logits: torch.Tensor, rows: SamplingRows, *, room: int = ROOM, tile: int = _TILE) -> torch.Tensor:
    """As `Ops.sample`, of at least one row. room, tile: powers of two."""
    n, vocab = logits.shape
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    tokens = torch.empty(n, dtype=torch.int64, device=logits.device)
    if rows.greedy:
        tops, limits, lows, highs, lengths, listed, ids = (tokens,) * 7
    else:
        tops = torch.empty(n, dtype=torch.float32, device=logits.device)
        limits = torch.zeros(n, dtype=torch.int64, device=logits.device)
        # Each from a multiple of 16 bytes on: kernels are compiled once for pointers so aligned, and once more for others.
        lows, highs, lengths = torch.empty((3, -(-n // 4) * 4), dtype=torch.int32, device=logits.device)
        listed = torch.empty((n, room), dtype=torch.float32, device=logits.device)
        ids = torch.empty((n, room), dtype=torch.int32, device=logits.device)
    most = triton.next_power_of_2(vocab)
    scale = float(2 ** (62 - most.bit_length()))  # so that all of a row's weights, none above 1, fit into 62 bits
    survey[(n,)](
        logits,
        rows.temperature.contiguous(),
        rows.top_k.contiguous(),
        rows.top_p.contiguous(),
        tokens,
        tops,
        limits,
        lows,
        highs,
        lengths,
        listed,
        ids,
        logits.stride(0),
        vocab,
        ROOM=room,
        SCALE=scale,
        TILE=min(tile, most),
        FLAT=min(tile, most, _FLAT),
        GREEDY=rows.greedy,
        num_warps=16,
        enable_fp_fusion=False,  # a weight has the same bits in both kernels
    )
    if not rows.greedy:
        race[(n,)](
            logits,
            rows.temperature.contiguous(),
            rows.top_k.contiguous(),
            rows.min_p.contiguous(),
            rows.stream.contiguous(),
            tokens,
            tops,
            limits,
            lows,
            highs,
            lengths,
            listed,
            ids,
            logits.stride(0),
            vocab,
            ROOM=room,
            SCALE=scale,
            TILE=min(tile, most),
            LIST_TILE=min(room, _LIST_TILE),
            LIST_WAYS=_LIST_WAYS,
            num_warps=16,
            enable_fp_fusion=False,
        )
    return tokens
