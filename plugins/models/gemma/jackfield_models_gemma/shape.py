"""`describe`: what the runtime must know of a Gemma 3 model before any weight is read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, Shard
from jackfield.layers.shards import check_decoder_shares
from jackfield_models_gemma.rope import read_ropes
from jackfield_models_gemma.settings import Settings, read_settings


def describe(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    """One rank's share of the model. Raises UnsupportedModel that names the config entry at fault."""
    settings = read_settings(config)
    read_ropes(config, settings)
    check_decoder_shares(
        num_heads=settings.num_attention_heads,
        num_kv_heads=settings.num_key_value_heads,
        intermediate_size=settings.intermediate_size,
        shard=shard,
    )
    num_heads = settings.num_attention_heads // shard.tp_size
    num_kv_heads = max(1, settings.num_key_value_heads // shard.tp_size)
    names = tuple("window" if windowed and settings.window else "full" for windowed in settings.windowed)
    groups = tuple(
        KVGroup(
            name=kind,
            kind=kind,
            layers=members,
            num_kv_heads=num_kv_heads,
            head_size=settings.head_dim,
            v_head_size=settings.head_dim,
            window=settings.window if kind == "window" else None,
        )
        for kind in ("full", "window")
        if (members := tuple(layer for layer, name in enumerate(names) if name == kind))
    )
    layers = tuple(
        AttentionLayer(
            id=layer,
            group=name,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_size=settings.head_dim,
            v_head_size=settings.head_dim,
            scale=settings.query_pre_attn_scalar**-0.5,
            window=settings.window if name == "window" else None,
        )
        for layer, name in enumerate(names)
    )
    return ModelShape(
        architecture="Gemma3ForCausalLM",
        num_layers=settings.num_hidden_layers,
        hidden_size=settings.hidden_size,
        vocab_size=settings.vocab_size,
        max_context=settings.max_position_embeddings,  # of a scaled rope it counts the stretched length already
        dtype=settings.dtype or "float32",
        layers=layers,
        groups=groups,
        features=frozenset({"window"}) if "window" in names else frozenset(),
        weight_bytes=2 * _elements(settings, num_heads, num_kv_heads, shard),
    )


def _elements(settings: Settings, num_heads: int, num_kv_heads: int, shard: Shard) -> int:
    attention = settings.hidden_size * settings.head_dim * (2 * num_heads + 2 * num_kv_heads)
    mlp = 3 * settings.hidden_size * (settings.intermediate_size // shard.tp_size)
    norms = 4 * settings.hidden_size + 2 * settings.head_dim
    tables = 1 if settings.tie_word_embeddings else 2
    vocabulary = tables * -(-settings.vocab_size // shard.tp_size) * settings.hidden_size
    return settings.num_hidden_layers * (attention + mlp + norms) + vocabulary + settings.hidden_size
