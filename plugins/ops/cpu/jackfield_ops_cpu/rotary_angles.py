"""The angles of one forward: looked up once for all layers that share a rotary table."""

from __future__ import annotations

import numpy as np
import torch

from jackfield.hookspecs import ForwardContext, Rotary

_AT_ONCE = 64
"""Positions that torch looks up at once: no more elements than it leaves to one thread, because its own threads, once awake, spin
for a while and take the cores from ours."""


class Angles:
    """cos, sin float32 [n, half], rows `stride` elements apart, and the memory that holds them."""

    __slots__ = ("cos", "half", "held", "sin", "stride")

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self.held = (cos, sin)
        self.cos, self.sin = cos.data_ptr(), sin.data_ptr()
        self.stride, self.half = cos.stride(0), cos.shape[1]


class RotaryAngles:
    """Remembers the angles of the last forward by its context and positions, which it holds so that they stay what they are."""

    def __init__(self) -> None:
        self._context: ForwardContext | None = None
        self._positions: torch.Tensor | None = None
        self._found: dict[int, tuple[Rotary, Angles]] = {}

    def of(self, rotary: Rotary, context: ForwardContext) -> Angles:
        positions = context.positions
        if context is not self._context or positions is not self._positions:
            self._context, self._positions = context, positions
            self._found.clear()
        found = self._found.get(id(rotary))
        if found is None:
            found = self._found[id(rotary)] = (rotary, _look_up(rotary, positions))
        return found[1]


def _look_up(rotary: Rotary, positions: torch.Tensor) -> Angles:
    n = positions.shape[0]
    if n <= _AT_ONCE:
        cos, sin = rotary.tables(positions)
        if cos.dtype is torch.float32 and cos.stride(1) == sin.stride(1) == 1 and cos.stride(0) == sin.stride(0):
            return Angles(cos, sin)
        return Angles(cos.float().contiguous(), sin.float().contiguous())
    both: list[np.ndarray] = []
    for start in range(0, n, _AT_ONCE):
        for which, part in enumerate(rotary.tables(positions[start : start + _AT_ONCE])):
            if not start:
                both.append(np.empty((n, part.shape[1]), dtype=np.float32))
            both[which][start : start + _AT_ONCE] = part.numpy()
    return Angles(torch.from_numpy(both[0]), torch.from_numpy(both[1]))
