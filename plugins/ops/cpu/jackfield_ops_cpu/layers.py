"""All layers of a forward in one native call: the descriptors of their blocks and of their attention, put in a row once.

It knows the native attention of this package; with any other the layers are gone through one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from jackfield.hookspecs import AttentionBackend, AttentionPlan, ForwardContext, LayerBlocks, Rotary
from jackfield_ops_cpu.attention import NativeAttention, NativePlan
from jackfield_ops_cpu.blocks import PostBlock, PreBlock
from jackfield_ops_cpu.library import library
from jackfield_ops_cpu.rotary_angles import RotaryAngles
from jackfield_ops_cpu.weights import Scalar

NO_ANGLES = -1
"""As in csrc/layers.h."""


class AnglesStruct(ctypes.Structure):
    """`JfAngles`."""

    _fields_ = (
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("half", ctypes.c_int64),
    )


class LayerStruct(ctypes.Structure):
    """`JfLayer`."""

    _fields_ = (
        ("pre", ctypes.c_void_p),
        ("attention", ctypes.c_void_p),
        ("post", ctypes.c_void_p),
        ("angles", ctypes.c_int64),
    )


class Program:
    """The layers of a model with the memory that a backend has bound. Keeps alive all that it points into."""

    def __init__(self, layers: Sequence[LayerBlocks], addresses: Mapping[int, int], scalar: Scalar) -> None:
        """addresses: of `JfAttentionLayer`, by layer id. Raises ValueError for blocks that do not fit together."""
        self._layers = layers
        self._addresses = addresses
        self._before = tuple(PreBlock(layer.pre, scalar) for layer in layers)
        self._after = tuple(PostBlock(layer.post, scalar) for layer in layers)
        self.hidden = self._before[0].hidden
        for layer, before, after in zip(layers, self._before, self._after, strict=True):
            heads = layer.attention.num_heads * layer.attention.v_head_size
            if not (before.hidden == after.hidden == self.hidden) or after.attended != heads:
                raise ValueError(
                    f"layer {layer.attention.id}: its blocks take and give {before.hidden} and {after.hidden} features, of which "
                    f"{self.hidden} enter the first layer; its o takes {after.attended} of {heads} of its heads"
                )
        self.rotaries: list[Rotary] = []
        self.struct = (LayerStruct * len(layers))(
            *(
                LayerStruct(
                    before.address, addresses[layer.attention.id], after.address, self._angles(layer.pre.rotary)
                )
                for layer, before, after in zip(layers, self._before, self._after, strict=True)
            )
        )
        self.angles = (AnglesStruct * max(1, len(self.rotaries)))()
        self._packed = tuple(_packed(layer) for layer in layers)

    def is_of(self, layers: Sequence[LayerBlocks], addresses: Mapping[int, int]) -> bool:
        """Whether nothing was bound or packed anew since."""
        if self._layers is not layers or self._addresses is not addresses:
            return False
        for layer, (qkv, o, gate_up, down) in zip(layers, self._packed, strict=True):
            post = layer.post
            if layer.pre.qkv is not qkv or post.o is not o or post.gate_up is not gate_up or post.down is not down:
                return False
        return True

    def _angles(self, rotary: Rotary | None) -> int:
        if rotary is None:
            return NO_ANGLES
        for number, known in enumerate(self.rotaries):
            if known is rotary:
                return number
        self.rotaries.append(rotary)
        return len(self.rotaries) - 1


def _packed(layer: LayerBlocks) -> tuple[Any, ...]:
    return layer.pre.qkv, layer.post.o, layer.post.gate_up, layer.post.down


class NativeLayers:
    """Runs programs, and keeps that of the last layers. dtype: of the run; threads: of the pool."""

    def __init__(self, dtype: torch.dtype, scalar: Scalar, threads: int) -> None:
        self._dtype = dtype
        self._scalar = scalar
        self._threads = threads
        self._run = library().jf_layers
        self._program: Program | None = None

    def run(
        self,
        layers: Sequence[LayerBlocks],
        x: torch.Tensor,
        ctx: ForwardContext,
        known_angles: RotaryAngles,
        backend: AttentionBackend,
        plan: AttentionPlan,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """x [n, hidden] -> (x, residual) of the last layer; None where another backend, or one unlike the operators, serves the
        layers, or there is nothing to do. Raises ValueError for rows that do not fit the layers or the plan."""
        if type(backend) is not NativeAttention or type(plan) is not NativePlan or not layers or not x.shape[0]:
            return None
        if backend.scalar != self._scalar or backend.threads != self._threads:
            return None
        if not all(layer.attention is layer.pre.layer for layer in layers):
            return None
        program = self._program
        if program is None or not program.is_of(layers, backend.addresses):
            program = self._program = Program(layers, backend.addresses, self._scalar)
        n = x.shape[0]
        if x.dtype is not self._dtype or x.shape != (n, program.hidden):
            raise ValueError(f"rows are {x.dtype} {tuple(x.shape)}; {self._dtype} (n, {program.hidden}) was expected")
        x = x.contiguous()
        angles = program.angles
        for number, rotary in enumerate(program.rotaries):
            found, into = known_angles.of(rotary, ctx), angles[number]
            into.cos, into.sin, into.stride, into.half = found.cos, found.sin, found.stride, found.half
        out, total = torch.empty_like(x), torch.empty_like(x)
        if not self._run(
            program.struct,
            len(program.struct),
            n,
            x.data_ptr(),
            angles,
            plan.handle,
            out.data_ptr(),
            total.data_ptr(),
            self._threads,
        ):
            raise ValueError(f"{n} rows enter the layers; the attention plan is of another number of tokens")
        return out, total
