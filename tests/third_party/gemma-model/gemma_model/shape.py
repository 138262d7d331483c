"""What the runtime must know before any weight is read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemma_model.config import read_config
from jackfield.hookspecs import AttentionLayer, KVGroup, ModelShape, Shard, UnsupportedModel


def describe(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    """One rank's share. Raises UnsupportedModel, naming the entry."""
    read = read_config(config)
    if shard.pp_size != 1:
        raise UnsupportedModel(f"pipeline parallelism ({shard.pp_size} stages) is not supported by this model code")
    heads, kv_heads = read.num_attention_heads, read.num_key_value_heads
    even_kv = kv_heads % shard.tp_size == 0 or shard.tp_size % kv_heads == 0  # Gemma 2b has one, which all ranks share
    if heads % shard.tp_size or read.intermediate_size % shard.tp_size or not even_kv:
        raise UnsupportedModel(
            f"num_attention_heads, num_key_value_heads, intermediate_size: {heads}, {kv_heads} and "
            f"{read.intermediate_size} cannot be shared by {shard.tp_size} tensor-parallel ranks"
        )
    size, count = read.head_dim, read.num_hidden_layers
    here = max(1, kv_heads // shard.tp_size)
    group = KVGroup(
        name="full", kind="full", layers=tuple(range(count)), num_kv_heads=here, head_size=size, v_head_size=size
    )
    layers = tuple(
        AttentionLayer(
            id=number,
            group=group.name,
            num_heads=heads // shard.tp_size,
            num_kv_heads=here,
            head_size=size,
            v_head_size=size,
            scale=size**-0.5,
        )
        for number in group.layers
    )
    hidden = read.hidden_size
    each = hidden * (2 * size * (heads + kv_heads) + 3 * read.intermediate_size)
    return ModelShape(
        architecture="GemmaForCausalLM",
        num_layers=count,
        hidden_size=hidden,
        vocab_size=read.vocab_size,
        max_context=read.max_position_embeddings,
        dtype=read.dtype or "float32",
        layers=layers,
        groups=(group,),
        weight_bytes=2 * (count * each + hidden * read.vocab_size) // shard.tp_size,
    )
