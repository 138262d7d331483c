"""Decoder layers one by one, with any attention backend: what contexts do where operators have no call for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jackfield.hookspecs import ForwardContext, LayerBlocks


def layers_one_by_one(
    layers: Sequence[LayerBlocks], x: torch.Tensor, ctx: ForwardContext
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [n, hidden] -> (x, residual) of the last layer. Raises ValueError if there is none."""
    if not layers:
        raise ValueError("a decoder of no layers has no residual")
    residual = None
    for layer in layers:
        q, k, v, residual = ctx.pre_attention(layer.pre, x, residual)
        attended = ctx.attend(layer.attention, q, k, v)  # [n, heads * v_head_size]
        x, residual = ctx.post_attention(layer.post, attended, residual)
    assert residual is not None
    return x, residual
