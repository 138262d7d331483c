"""What the runtime must know of it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, Shard, UnsupportedModel


def describe(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    if shard.tp_size != 1 or shard.pp_size != 1:
        raise UnsupportedModel("one rank alone")
    heads, kv_heads, count = (config[f"num_{name}"] for name in ("attention_heads", "key_value_heads", "hidden_layers"))
    size = config["hidden_size"] // heads
    layers = tuple(
        AttentionLayer(
            id=layer,
            group="full",
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_size=size,
            v_head_size=size,
            scale=size**-0.5,
        )
        for layer in range(count)
    )
    group = KVGroup(
        name="full", kind="full", layers=tuple(range(count)), num_kv_heads=kv_heads, head_size=size, v_head_size=size
    )
    return ModelShape(
        architecture="LlamaForCausalLM",
        num_layers=count,
        hidden_size=config["hidden_size"],
        vocab_size=config["vocab_size"],
        max_context=config["max_position_embeddings"],
        dtype=config.get("dtype") or "float32",
        layers=layers,
        groups=(group,),
        weight_bytes=2 * config["vocab_size"] * config["hidden_size"],
    )
