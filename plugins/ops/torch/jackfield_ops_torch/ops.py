"""The operators of `ops.torch` are those of `jackfield.layers`, from which providers with kernels of their own take the rest."""

from __future__ import annotations

from jackfield.layers.torch_ops import TorchOps

__all__ = ["TorchOps"]
