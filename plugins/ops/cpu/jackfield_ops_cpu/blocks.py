"""Blocks round attention as the native library takes them: described once a layer, from the records of the contract."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from sys import getrefcount
from types import MappingProxyType
from typing import Any

import torch

from jackfield.hookspecs import PostAttention, PreAttention
from jackfield_ops_cpu.weights import SCALARS, PackedWeight, Scalar

ACTIVATIONS: Mapping[str, int] = MappingProxyType({"silu": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3})
"""As in csrc/rows.h."""

PROJECT, MLP, LEAVE = 1, 2, 4
ALL_STEPS = PROJECT | MLP | LEAVE
"""Steps after attention, as in csrc/blocks.h."""


class NormStruct(ctypes.Structure):
    """`jf::Norm`."""

    _fields_ = (("weight", ctypes.c_void_p), ("scalar", ctypes.c_int32), ("eps", ctypes.c_float))


class PreStruct(ctypes.Structure):
    """`jf::PreBlock`."""

    _fields_ = (
        ("qkv", ctypes.c_void_p),
        ("qkv_bias", ctypes.c_void_p),
        ("norm", NormStruct),
        ("q_norm", NormStruct),
        ("k_norm", NormStruct),
        ("heads", ctypes.c_int64),
        ("kv_heads", ctypes.c_int64),
        ("head_size", ctypes.c_int64),
        ("v_head_size", ctypes.c_int64),
        ("scalar", ctypes.c_int32),
    )


class PostStruct(ctypes.Structure):
    """`jf::PostBlock`."""

    _fields_ = (
        ("o", ctypes.c_void_p),
        ("o_bias", ctypes.c_void_p),
        ("after_attention", NormStruct),
        ("norm", NormStruct),
        ("gate_up", ctypes.c_void_p),
        ("gate_up_bias", ctypes.c_void_p),
        ("down", ctypes.c_void_p),
        ("down_bias", ctypes.c_void_p),
        ("after_mlp", NormStruct),
        ("activation", ctypes.c_int32),
        ("scalar", ctypes.c_int32),
    )


def norm_struct(weight: torch.Tensor, eps: float, scalar: Scalar, size: int) -> NormStruct:
    """Raises ValueError for a weight that the kernels cannot read."""
    kind = SCALARS.get(weight.dtype)
    if weight.shape != (size,) or not weight.is_contiguous() or kind not in (scalar, Scalar.FLOAT32):
        raise ValueError(
            f"a norm weight is {weight.dtype} {tuple(weight.shape)}; {scalar.name.lower()} or float32 ({size},) was expected"
        )
    return NormStruct(weight.data_ptr(), kind, eps)


KEEP_ROWS = 64
"""Of batches with no more rows a block keeps the tensors of its last result for the next one. Making them anew would cost as much
as a small product; larger batches do not feel it, and their tensors are worth freeing."""


def _references(tensors: tuple[torch.Tensor, ...]) -> list[int]:
    return [getrefcount(tensor) for tensor in tensors]


(_OURS,) = _references((torch.empty(0),))
"""References to a tensor that nobody else holds. Counted here as later, because versions of Python count differently."""


class Kept:
    """Tensors of a block's last result, and where they lie. Within one forward no two blocks share any, so that a model may hold
    what it likes; those that somebody holds beyond it are left to him. A view held beyond it is not seen: it must be copied."""

    __slots__ = ("addresses", "rows", "tensors", "width")

    def __init__(self, shapes: Sequence[tuple[int, ...]], rows: int, dtype: torch.dtype) -> None:
        self.rows = rows
        self.width = shapes[-1][-1]  # of the last one, the sum
        self.tensors = tuple(torch.empty((rows, *shape), dtype=dtype) for shape in shapes)
        self.addresses = tuple(tensor.data_ptr() for tensor in self.tensors)

    def free(self) -> bool:
        return all(count == _OURS for count in _references(self.tensors))


class Block:
    """A descriptor, and all that must live as long as it: the block, whose tensors and packed weights it points into."""

    shapes: Sequence[tuple[int, ...]]
    kept: Kept | None = None

    def __init__(self, block: PreAttention | PostAttention, struct: ctypes.Structure) -> None:
        self.block = block
        self.struct = struct
        self.address = ctypes.addressof(struct)

    def results(self, rows: int, dtype: torch.dtype) -> Kept:
        """Tensors for the result, contents undefined."""
        kept = self.kept
        if kept is not None and kept.rows == rows and kept.free():
            return kept
        made = Kept(self.shapes, rows, dtype)
        self.kept = made if rows <= KEEP_ROWS else None
        return made


class PreBlock(Block):
    """shapes: of what it gives, a row: q, k, v and the sum."""

    def __init__(self, block: PreAttention, scalar: Scalar) -> None:
        layer, qkv = block.layer, _packed(block.qkv)
        self.hidden = qkv.columns
        self.q_shape = (layer.num_heads, layer.head_size)
        self.k_shape = (layer.num_kv_heads, layer.head_size)
        self.v_shape = (layer.num_kv_heads, layer.v_head_size)
        rows = sum(heads * size for heads, size in (self.q_shape, self.k_shape, self.v_shape))
        if qkv.rows != rows:
            raise ValueError(f"layer {layer.id}: q, k and v have {qkv.rows} rows; its heads make {rows}")
        super().__init__(
            block,
            PreStruct(
                qkv=qkv.address,
                qkv_bias=_bias(block.qkv_bias, scalar, rows),
                norm=norm_struct(block.norm.weight, block.norm.eps, scalar, self.hidden),
                q_norm=_maybe_norm(block.q_norm, scalar, layer.head_size),
                k_norm=_maybe_norm(block.k_norm, scalar, layer.head_size),
                heads=layer.num_heads,
                kv_heads=layer.num_kv_heads,
                head_size=layer.head_size,
                v_head_size=layer.v_head_size,
                scalar=scalar,
            ),
        )
        self.qkv = block.qkv
        self.shapes = (self.q_shape, self.k_shape, self.v_shape, (self.hidden,))


class PostBlock(Block):
    def __init__(self, block: PostAttention, scalar: Scalar) -> None:
        o, gate_up, down = _packed(block.o), _packed(block.gate_up), _packed(block.down)
        self.attended, self.hidden, inner = o.columns, o.rows, down.columns
        if gate_up.rows != 2 * inner or gate_up.columns != self.hidden or down.rows != self.hidden:
            raise ValueError(
                f"layer {block.layer.id}: o {o.rows} x {o.columns}, gate and up {gate_up.rows} x {gate_up.columns} and "
                f"down {down.rows} x {down.columns} do not fit together"
            )
        super().__init__(
            block,
            PostStruct(
                o=o.address,
                o_bias=_bias(block.o_bias, scalar, self.hidden),
                after_attention=_maybe_norm(block.after_attention, scalar, self.hidden),
                norm=norm_struct(block.norm.weight, block.norm.eps, scalar, self.hidden),
                gate_up=gate_up.address,
                gate_up_bias=_bias(block.gate_up_bias, scalar, 2 * inner),
                down=down.address,
                down_bias=_bias(block.down_bias, scalar, self.hidden),
                after_mlp=_maybe_norm(block.after_mlp, scalar, self.hidden),
                activation=ACTIVATIONS[block.activation],
                scalar=scalar,
            ),
        )
        self.down = block.down
        self.shapes = ((self.hidden,), (self.hidden,))


def _packed(weight: Any) -> PackedWeight:
    if not isinstance(weight, PackedWeight):
        raise TypeError(f"a weight was not packed by this provider: it is a {type(weight).__name__}")
    return weight


def _bias(bias: torch.Tensor | None, scalar: Scalar, size: int) -> int | None:
    if bias is None:
        return None
    check_vector(bias, scalar, size)
    return bias.data_ptr()


def check_vector(bias: torch.Tensor, scalar: Scalar, size: int) -> None:
    """Raises ValueError for a bias that the kernels cannot read."""
    if bias.shape != (size,) or not bias.is_contiguous() or SCALARS.get(bias.dtype) is not scalar:
        raise ValueError(f"a bias is {bias.dtype} {tuple(bias.shape)}; {scalar.name.lower()} ({size},) was expected")


def _maybe_norm(norm: Any, scalar: Scalar, size: int) -> NormStruct:
    return NormStruct(None, scalar, 0.0) if norm is None else norm_struct(norm.weight, norm.eps, scalar, size)
