"""The KV cache's memory: tensors by a named layout. It knows shapes and bytes, not who owns which slot."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence

import torch

from jackfield.hookspecs import InsufficientMemory, KVGroup, KVLayout, KVTensors, KVTensorSpec
from jackfield.model_executor.dtypes import torch_dtype
from jackfield.model_executor.room import gib


def spec_dtype(spec: KVTensorSpec, kv_dtype: torch.dtype) -> torch.dtype:
    """The element type of one tensor of a layout."""
    return kv_dtype if spec.dtype == "kv" else torch_dtype(spec.dtype)


def page_bytes(
    groups: Sequence[KVGroup], layouts: Mapping[str, KVLayout], page_size: int, kv_dtype: torch.dtype
) -> int:
    """Bytes that one page takes over all layers of all groups."""
    total = 0
    for group in groups:
        for spec in layouts[group.name].tensors:
            elements = 1
            for size in _page_shape(group, spec, page_size):
                elements *= size
            total += elements * spec_dtype(spec, kv_dtype).itemsize * len(group.layers)
    return total


def allocate_kv(
    groups: Sequence[KVGroup],
    layouts: Mapping[str, KVLayout],
    num_pages: int,
    page_size: int,
    kv_dtype: torch.dtype,
    device: torch.device,
    window_pages: int | None = None,
) -> dict[str, KVTensors]:
    """Group name -> its tensors, each [num_pages + 1, *page shape], zeroed; page 0 is the dummy page. window_pages: pages of
    window groups, if they have other ones."""

    def pages(group: KVGroup) -> int:
        return num_pages if window_pages is None or group.kind != "window" else window_pages

    return {
        group.name: KVTensors(
            group=group,
            layout=layouts[group.name],
            page_size=page_size,
            tensors={
                spec.role: tuple(
                    _zeros((pages(group) + 1, *_page_shape(group, spec, page_size)), spec_dtype(spec, kv_dtype), device)
                    for _ in group.layers
                )
                for spec in layouts[group.name].tensors
            },
        )
        for group in groups
    }


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeroed memory. On the CPU from the system itself, whose pages take no memory before they are written: torch.zeros writes
    all of them, NumPy's asks for pages of 2 MiB, and most runs never use most of the pool."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        raw = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise InsufficientMemory(
            f"a tensor of {gib(nbytes)} for the KV cache cannot be had ({error.strerror}): lower --max-total-tokens"
        ) from error
    return torch.frombuffer(raw, dtype=torch.uint8)[:nbytes].view(dtype).view(shape)


def _page_shape(group: KVGroup, spec: KVTensorSpec, page_size: int) -> tuple[int, ...]:
    return spec.sizes(
        page_size=page_size,
        num_kv_heads=group.num_kv_heads,
        head_size=group.head_size,
        v_head_size=group.v_head_size,
    )
