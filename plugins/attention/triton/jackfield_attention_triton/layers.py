"""What of a layer a plan depends on: layers of one kind share their tiles and splits."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.hookspecs import AttentionLayer


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """window 0: none. Otherwise as in `AttentionLayer`."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    v_head_size: int
    window: int
    causal: bool

    @property
    def share(self) -> int:
        """Query heads of one KV head."""
        return self.num_heads // self.num_kv_heads


def kind_of(layer: AttentionLayer) -> LayerKind:
    """The kind of a layer."""
    return LayerKind(
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_size=layer.head_size,
        v_head_size=layer.v_head_size,
        window=layer.window or 0,
        causal=layer.causal,
    )


def block_of(size: int) -> int:
    """The power of two that holds a dimension, at least the 16 of a matrix product's smallest side."""
    return max(16, 1 << (size - 1).bit_length())
