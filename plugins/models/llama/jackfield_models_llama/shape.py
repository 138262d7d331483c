"""`describe`: what the runtime must know of a Llama-family model before any weight is read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, Shard, UnsupportedModel
from jackfield_models_llama.settings import Settings, read_settings


def describe(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    """One rank's share of the model. Raises UnsupportedModel that names the config entry at fault."""
    settings = read_settings(config)
    check_shard(settings, shard)
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


def check_shard(settings: Settings, shard: Shard) -> None:
    """Refuse a number of ranks that cannot share the model, naming those that can."""
    if shard.pp_size != 1:
        raise UnsupportedModel(f"pipeline parallelism ({shard.pp_size} stages) is not supported by this model code")
    if not _shares(settings, shard.tp_size):
        fitting = [str(size) for size in range(1, settings.num_heads + 1) if _shares(settings, size)]
        raise UnsupportedModel(
            f"num_attention_heads, num_key_value_heads, intermediate_size: {settings.num_heads} heads / "
            f"{settings.num_kv_heads} KV heads and {settings.intermediate_size} inner features cannot be shared by "
            f"{shard.tp_size} tensor-parallel ranks; sizes that can: {', '.join(fitting)}"
        )


def _shares(settings: Settings, tp_size: int) -> bool:
    even_kv = settings.num_kv_heads % tp_size == 0 or tp_size % settings.num_kv_heads == 0
    return settings.num_heads % tp_size == 0 and even_kv and settings.intermediate_size % tp_size == 0


def _elements(settings: Settings, num_heads: int, num_kv_heads: int, shard: Shard) -> int:
    attention = settings.hidden_size * settings.head_size * (2 * num_heads + 2 * num_kv_heads)
    mlp = 3 * settings.hidden_size * (settings.intermediate_size // shard.tp_size)
    tables = 1 if settings.tied else 2
    vocabulary = tables * -(-settings.vocab_size // shard.tp_size) * settings.hidden_size
    norms = (2 * settings.num_layers + 1) * settings.hidden_size
    return settings.num_layers * (attention + mlp) + vocabulary + norms
