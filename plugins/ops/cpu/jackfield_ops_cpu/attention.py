"""Native attention over paged KV: checks what it is given once, then one call into the library for a plan or a layer.

It knows layers, layouts and the library's records; which rows are computed together is the library's business.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from jackfield.hookspecs import (
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionPlan,
    KVTensors,
)
from jackfield_ops_cpu.library import library

if TYPE_CHECKING:
    import torch

_DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
_INT, _LONG, _DOUBLE, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class _Group(ctypes.Structure):
    """JfAttentionGroup of csrc/attention.h."""

    _fields_ = (("table", _POINTER), ("stride", _LONG), ("page", _INT), ("kv_heads", _INT), ("head_major", _INT))


class _Kind(ctypes.Structure):
    """JfAttentionKind of csrc/attention.h."""

    _fields_ = (
        ("group", _INT),
        ("heads", _INT),
        ("kv_heads", _INT),
        ("head", _INT),
        ("v_head", _INT),
        ("window", _INT),
        ("causal", _INT),
    )


class _Layer(ctypes.Structure):
    """JfAttentionLayer of csrc/attention.h."""

    _fields_ = (("kind", _INT), ("scale", _DOUBLE), ("soft_cap", _DOUBLE), ("keys", _POINTER), ("values", _POINTER))


class NativePlan(AttentionPlan):
    """A plan in the library, which takes it back when this object goes."""

    __slots__ = ("_free", "handle")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._free = library().jf_attention_plan_free

    def __del__(self) -> None:
        self._free(self.handle)

    def shared(self, kind: int = 0) -> tuple[int, int]:
        """Passes over keys that several rows share, and the tokens that they cover, for layers of a kind."""
        passes, tokens = _LONG(), _LONG()
        library().jf_attention_plan_shared(self.handle, kind, ctypes.byref(passes), ctypes.byref(tokens))
        return passes.value, tokens.value


class NativeAttention(AttentionBackend):
    """One native call a plan and one a layer. Threads: torch's number when it is made.

    scalar, threads   of the kernels, and of the pool
    addresses         layer id -> `JfAttentionLayer`, another mapping after each `bind`

    A layer's keys and values are read where they lie. Rows of few new tokens whose tables begin with the same slots go over
    these together.
    """

    def __init__(self, context: AttentionContext) -> None:
        import torch

        self._library = library()
        self._tables = context.tables  # the library reads them at every plan
        self._names = tuple(context.tables)
        self._kinds = _kinds(context)
        self._context = context
        groups = (_Group * len(self._names))(*(_group(context, name) for name in self._names))
        kinds = (_Kind * len(self._kinds))(*(_Kind(*kind) for kind in self._kinds))
        self._free = self._library.jf_attention_free
        self.scalar, self.threads = _DTYPES[context.dtype], torch.get_num_threads()
        self._handle = self._library.jf_attention_new(self.scalar, self.threads, groups, len(groups), kinds, len(kinds))
        self._plan = self._library.jf_attention_plan
        self._attend = self._library.jf_attention_attend
        self._layers: dict[int, _Layer] = {}
        self.addresses: Mapping[int, int] = {}
        self._kv: Mapping[str, KVTensors] = {}

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._free(self._handle)

    def bind(self, kv: Mapping[str, KVTensors]) -> None:
        """ValueError for tensors that are not what the context's layouts say."""
        self._kv = kv
        self._layers = {layer.id: self._bound(layer, kv[layer.group]) for layer in self._context.layers}
        self.addresses = {id_: ctypes.addressof(layer) for id_, layer in self._layers.items()}

    def plan(self, batch: AttentionBatch) -> NativePlan:
        slots = (_POINTER * len(self._names))(*(batch.out_slots[name].data_ptr() for name in self._names))
        rows = batch.rows
        return NativePlan(
            self._plan(
                self._handle,
                rows.data_ptr(),
                batch.q_starts.data_ptr(),
                batch.kv_lens.data_ptr(),
                rows.shape[0],
                slots,
            )
        )

    def attend(
        self,
        plan: AttentionPlan,
        layer: AttentionLayer,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
    ) -> None:
        handle, address = cast(NativePlan, plan).handle, self.addresses[layer.id]
        if k is None or v is None:
            self._attend(handle, address, q.data_ptr(), q.stride(0), None, 0, None, 0, out.data_ptr())
            return
        self._attend(
            handle,
            address,
            q.data_ptr(),
            q.stride(0),
            k.data_ptr(),
            k.stride(0),
            v.data_ptr(),
            v.stride(0),
            out.data_ptr(),
        )

    def _bound(self, layer: AttentionLayer, kv: KVTensors) -> _Layer:
        source = layer.id if layer.kv_source is None else layer.kv_source
        keys, values = kv.of("k", source), kv.of("v", source)
        for role, tensor in (("k", keys), ("v", values)):
            if not tensor.is_contiguous() or tensor.dtype != _torch_dtype(self._context.dtype):
                raise ValueError(
                    f"the {role} of layer {source} is {tensor.dtype} of strides {tensor.stride()}: attention.cpu reads "
                    f"contiguous {self._context.dtype}"
                )
        return _Layer(
            self._kinds.index(_kind(self._context, layer)),
            layer.scale,
            layer.soft_cap or 0.0,
            keys.data_ptr(),
            values.data_ptr(),
        )


def _torch_dtype(name: str) -> torch.dtype:
    import torch

    return cast("torch.dtype", getattr(torch, name))


def _group(context: AttentionContext, name: str) -> _Group:
    (group,) = (group for group in context.groups if group.name == name)
    table = context.tables[name]
    return _Group(
        table.data_ptr(),
        table.stride(0),
        context.page_size,
        group.num_kv_heads,
        context.layouts[name].name == "hnd-paged",
    )


def _kind(context: AttentionContext, layer: AttentionLayer) -> tuple[int, ...]:
    """Fields of `_Kind`."""
    return (
        tuple(context.tables).index(layer.group),
        layer.num_heads,
        layer.num_kv_heads,
        layer.head_size,
        layer.v_head_size,
        layer.window or 0,
        layer.causal,
    )


def _kinds(context: AttentionContext) -> tuple[tuple[int, ...], ...]:
    return tuple(dict.fromkeys(_kind(context, layer) for layer in context.layers))
