"""Random weights of a shape as a `ModelSource`: slices of one buffer of random numbers, so that 16 GB take seconds.

A tensor's numbers are the same in every process, and other ones than its neighbours' (each begins elsewhere in the buffer).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from benchmarks.gpu.shapes import tensors
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSource, ModelSourceError, Shard, TokenizerFiles, Weight

BLOCK = (1 << 22) - 3
"""Distinct random numbers; odd, so that the rows of a matrix, whose lengths are powers of two, differ."""


class RandomSource(ModelSource):
    """dtype: torch's name of the weights'; `config` is told in it."""

    def __init__(self, config: Mapping[str, Any], dtype: str, seed: int = 0) -> None:
        self._config = {**config, "torch_dtype": dtype}
        self._dtype = dtype
        self._seed = seed

    def config(self) -> dict[str, Any]:
        return dict(self._config)

    def tokenizer(self) -> TokenizerFiles:
        raise ModelSourceError("random weights have no tokenizer")

    def weights(self, shard: Shard) -> Iterator[Weight]:
        shapes = dict(tensors(self._config))
        scale = self._config["hidden_size"] ** -0.5
        normal = self._buffer(max(map(math.prod, shapes.values())), scale)
        ones = torch.ones(max(shape[0] for shape in shapes.values()), dtype=getattr(torch, self._dtype))
        for name, shape in shapes.items():
            data = _bytes(ones)[: shape[0] * ones.itemsize] if len(shape) == 1 else self._part(normal, name, shape)
            yield Weight(name=name, encoding="plain", dtype=self._dtype, shape=shape, parts={"data": data})

    def _buffer(self, longest: int, scale: float) -> NDArray[np.uint8]:
        """Bytes of at least `longest` + BLOCK numbers."""
        block = torch.randn(BLOCK, generator=torch.Generator().manual_seed(self._seed)).mul_(scale)
        one = _bytes(block.to(getattr(torch, self._dtype)))
        return np.tile(one, -(-longest // BLOCK) + 1)

    def _part(self, normal: NDArray[np.uint8], name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        itemsize: int = getattr(torch, self._dtype).itemsize
        start = zlib.crc32(name.encode()) % BLOCK * itemsize
        return normal[start : start + math.prod(shape) * itemsize]


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = tensor.contiguous().view(torch.uint8).numpy()
    return found
