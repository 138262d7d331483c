"""Which layers may share one of FlashInfer's plans: those that are alike in all that a plan is made for."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.hookspecs import AttentionLayer


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """What a layer is to a plan. The fields are those of `AttentionLayer`."""

    group: str
    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    window: int | None
    soft_cap: float | None
    causal: bool

    @property
    def window_left(self) -> int:
        """FlashInfer counts the tokens before the one that looks; -1: no window."""
        return -1 if self.window is None else self.window - 1


def kind_of(layer: AttentionLayer) -> LayerKind:
    """The kind of a layer."""
    return LayerKind(
        group=layer.group,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_size=layer.head_size,
        scale=layer.scale,
        window=layer.window,
        soft_cap=layer.soft_cap,
        causal=layer.causal,
    )
