"""How KV memory is described: groups of layers that share slot numbers, and the named layout of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class KVGroup:
    """Layers whose KV lives under the same slot numbers.

    kind        "full" | "window" | "latent" | "state"
    layers      ids of the attention layers, in order
    window      tokens that a window group looks back; None for full
    """

    name: str
    kind: str
    layers: tuple[int, ...]
    num_kv_heads: int
    head_size: int
    v_head_size: int
    window: int | None = None


@dataclass(frozen=True, kw_only=True)
class KVTensorSpec:
    """One tensor of a layout.

    role     "k" | "v" | "kv" | "scale" | "latent" | "state"
    shape    the dimensions of one page, as the words "page", "kv_heads", "head", "v_head" or a number
    dtype    a torch dtype's name, or "kv" for the run's KV dtype
    """

    role: str
    shape: tuple[str | int, ...]
    dtype: str = "kv"

    def sizes(self, *, page_size: int, num_kv_heads: int, head_size: int, v_head_size: int) -> tuple[int, ...]:
        """The page's dimensions as numbers."""
        words = {"page": page_size, "kv_heads": num_kv_heads, "head": head_size, "v_head": v_head_size}
        return tuple(words[word] if isinstance(word, str) else word for word in self.shape)


@dataclass(frozen=True, kw_only=True)
class KVLayout:
    """A named arrangement of one layer's KV. Each tensor is [pages, *page shape]; page 0 is the dummy page. Slot s lies in
    page s // page_size at place s % page_size.

    The core has two, each with the roles "k" and "v" (of v, the last dimension is v_head):

    nhd-paged   (`NHD_PAGED`) [pages, page, kv_heads, head]: slot s is row s of `tensor.flatten(0, 1)`
    hnd-paged   (`HND_PAGED`) [pages, kv_heads, page, head]
    """

    name: str
    tensors: tuple[KVTensorSpec, ...]


@dataclass(frozen=True, kw_only=True)
class KVTensors:
    """The allocated KV of one group.

    tensors    role -> one tensor a layer, in the order of `group.layers`, each [pages, *page shape]
    """

    group: KVGroup
    layout: KVLayout
    page_size: int
    tensors: Mapping[str, tuple[torch.Tensor, ...]]

    def of(self, role: str, layer_id: int) -> torch.Tensor:
        """The tensor of one layer, [pages, *page shape]. Raises KeyError if the group has no such role, ValueError if it
        has no such layer."""
        if role not in self.tensors:
            raise KeyError(f"KV group {self.group.name!r} has no role {role!r}; its roles: {', '.join(self.tensors)}")
        if layer_id not in self.group.layers:
            raise ValueError(f"KV group {self.group.name!r} has no layer {layer_id!r}; its layers: {self.group.layers}")
        return self.tensors[role][self.group.layers.index(layer_id)]


NHD_PAGED = KVLayout(
    name="nhd-paged",
    tensors=(
        KVTensorSpec(role="k", shape=("page", "kv_heads", "head")),
        KVTensorSpec(role="v", shape=("page", "kv_heads", "v_head")),
    ),
)
"""Token-major inside a page: slot s of a layer is row s of the tensor seen as [slots, kv_heads, head]."""

HND_PAGED = KVLayout(
    name="hnd-paged",
    tensors=(
        KVTensorSpec(role="k", shape=("kv_heads", "page", "head")),
        KVTensorSpec(role="v", shape=("kv_heads", "page", "v_head")),
    ),
)
"""Head-major inside a page."""

CORE_LAYOUTS: Mapping[str, KVLayout] = MappingProxyType({layout.name: layout for layout in (NHD_PAGED, HND_PAGED)})
