"""A pre-norm decoder with a gated MLP as one checked record, and what a rank must know of it. No torch.

Most open models of text are this decoder and differ by data: biases, norms of the heads, windows, layers without rotary.
`jackfield.layers.decoder` computes what the record says. Knows no config: an architecture's package fills the record in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, Shard
from jackfield.layers.shards import check_decoder_shares


@dataclass(frozen=True, kw_only=True)
class DecoderSettings:
    """Whole-model numbers, before any rank's share.

    qkv_bias, o_bias, mlp_bias   which projections have biases
    head_norms   q and k are normed, each head by itself, before rotary
    window       None: every token before it is seen in all layers
    windowed     a bool a layer: whether it has the window
    rotary       a bool a layer
    rope         the config's rotary entries, with the architecture's default theta filled in, for `Builder.rotary`
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_context: int
    eps: float
    activation: str
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    tied: bool
    window: int | None
    windowed: tuple[bool, ...]
    rotary: tuple[bool, ...]
    rope: Mapping[str, Any]
    dtype: str
    head_norms: bool = False


def decoder_shape(settings: DecoderSettings, shard: Shard) -> ModelShape:
    """One rank's share of the model. UnsupportedModel names the config entries if the ranks cannot share it."""
    check_decoder_shares(
        num_heads=settings.num_heads,
        num_kv_heads=settings.num_kv_heads,
        intermediate_size=settings.intermediate_size,
        shard=shard,
    )
    num_heads = settings.num_heads // shard.tp_size
    num_kv_heads = max(1, settings.num_kv_heads // shard.tp_size)
    groups = tuple(
        KVGroup(
            name=kind,
            kind=kind,
            layers=members,
            num_kv_heads=num_kv_heads,
            head_size=settings.head_size,
            v_head_size=settings.head_size,
            window=settings.window if kind == "window" else None,
        )
        for kind in ("full", "window")
        if (members := tuple(i for i, windowed in enumerate(settings.windowed) if windowed == (kind == "window")))
    )
    layers = tuple(
        AttentionLayer(
            id=layer,
            group="window" if windowed else "full",
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_size=settings.head_size,
            v_head_size=settings.head_size,
            scale=settings.head_size**-0.5,
            window=settings.window if windowed else None,
        )
        for layer, windowed in enumerate(settings.windowed)
    )
    return ModelShape(
        architecture=settings.architecture,
        num_layers=settings.num_layers,
        hidden_size=settings.hidden_size,
        vocab_size=settings.vocab_size,
        max_context=settings.max_context,
        dtype=settings.dtype,
        layers=layers,
        groups=groups,
        features=frozenset() if settings.window is None else frozenset({"window"}),
        weight_bytes=2 * _elements(settings, num_heads, num_kv_heads, shard),
    )


def _elements(settings: DecoderSettings, num_heads: int, num_kv_heads: int, shard: Shard) -> int:
    inner = settings.intermediate_size // shard.tp_size
    attention = settings.hidden_size * settings.head_size * (2 * num_heads + 2 * num_kv_heads)
    mlp = 3 * settings.hidden_size * inner
    biases = settings.qkv_bias * settings.head_size * (num_heads + 2 * num_kv_heads)
    biases += settings.o_bias * settings.hidden_size + settings.mlp_bias * (2 * inner + settings.hidden_size)
    norms = 2 * settings.hidden_size + 2 * settings.head_norms * settings.head_size
    tables = 1 if settings.tied else 2
    vocabulary = tables * -(-settings.vocab_size // shard.tp_size) * settings.hidden_size
    return settings.num_layers * (attention + mlp + biases + norms) + vocabulary + settings.hidden_size
