"""`describe`: what the runtime must know of an encoder before any weight is read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, Shard, UnsupportedModel
from jackfield_models_encoder.settings import Settings, read_settings

GROUP = "full"


def describe(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    """Raises UnsupportedModel that names the config entry at fault."""
    settings = read_settings(config)
    if (shard.tp_size, shard.pp_size) != (1, 1):
        raise UnsupportedModel("an encoder of this model code runs on one rank: run replicas beside each other")
    return ModelShape(
        architecture=settings.architecture,
        num_layers=settings.num_layers,
        hidden_size=settings.hidden_size,
        vocab_size=settings.vocab_size,
        max_context=settings.max_context,
        dtype=settings.dtype,
        layers=tuple(
            AttentionLayer(
                id=layer,
                group=GROUP,
                num_heads=settings.num_heads,
                num_kv_heads=settings.num_heads,
                head_size=settings.head_size,
                v_head_size=settings.head_size,
                scale=settings.head_size**-0.5,
                causal=False,
            )
            for layer in range(settings.num_layers)
        ),
        groups=(
            KVGroup(
                name=GROUP,
                kind="full",
                layers=tuple(range(settings.num_layers)),
                num_kv_heads=settings.num_heads,
                head_size=settings.head_size,
                v_head_size=settings.head_size,
            ),
        ),
        features=frozenset({"non_causal"}),
        weight_bytes=2 * _elements(settings),
        pooling=settings.pooling,
        generates=False,
    )


def _elements(settings: Settings) -> int:
    hidden, inner = settings.hidden_size, settings.intermediate_size
    tables = (settings.vocab_size + settings.max_position + settings.type_vocab_size + 2) * hidden
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * inner + hidden + inner + 4 * hidden
    head = hidden * (hidden + 1) + settings.pooling.width * (hidden + 1) if settings.family.classifies else 0
    return tables + settings.num_layers * layer + head
