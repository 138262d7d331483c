"""A Qwen2 or Qwen3 config as `DecoderSettings`, with the defaults that transformers has for each.

No torch. Every refusal is an UnsupportedModel that names the config entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jackfield.hookspecs import UnsupportedModel
from jackfield.layers.config_entries import (
    read_activation,
    read_architecture,
    read_count,
    read_dtype,
    read_eps,
    read_flag,
    read_head_size,
    read_kv_heads,
    read_layer_types,
    refuse_non_causal,
    refuse_quantised,
)
from jackfield.layers.decoder_shape import DecoderSettings
from jackfield.layers.rope_config import parse_rope, stretched_context


@dataclass(frozen=True, kw_only=True)
class Generation:
    """In what the two differ.

    qkv_bias     q, k and v always have biases and o never; else `attention_bias` decides for all four
    head_norms   q and k are normed, each head by itself
    head_size    where the config is silent; None: the heads' even share of the hidden size
    """

    qkv_bias: bool
    head_norms: bool
    head_size: int | None


GENERATIONS: Mapping[str, Generation] = MappingProxyType(
    {
        "Qwen2ForCausalLM": Generation(qkv_bias=True, head_norms=False, head_size=None),
        "Qwen3ForCausalLM": Generation(qkv_bias=False, head_norms=True, head_size=128),
    }
)

# What both assume where the config is silent
KV_HEADS, MAX_POSITION, WINDOW, MAX_WINDOW_LAYERS = 32, 32768, 4096, 28


def read_settings(config: Mapping[str, Any]) -> DecoderSettings:
    """Raises UnsupportedModel."""
    architecture = read_architecture(config, GENERATIONS)
    generation = GENERATIONS[architecture]
    refuse_quantised(config)
    refuse_non_causal(config)
    _refuse_chunks(config)

    num_heads = read_count(config, "num_attention_heads")
    hidden_size = read_count(config, "hidden_size")
    num_layers = read_count(config, "num_hidden_layers")
    head_size = read_head_size(config, hidden_size, num_heads, generation.head_size)
    rope = config
    if config.get("max_position_embeddings") is None:
        rope = {**config, "max_position_embeddings": MAX_POSITION}
    if parse_rope(rope, head_size=head_size).rotary_size != head_size:
        raise UnsupportedModel(f"partial_rotary_factor: {architecture} turns whole heads")
    max_context = stretched_context(rope, default_max_position=MAX_POSITION)
    window, windowed = _windows(config, num_layers, max_context)
    attention_bias = not generation.qkv_bias and read_flag(config, "attention_bias", False)
    return DecoderSettings(
        architecture=architecture,
        vocab_size=read_count(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=read_count(config, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=read_kv_heads(config, num_heads, KV_HEADS),
        head_size=head_size,
        max_context=max_context,
        eps=read_eps(config),
        activation=read_activation(config),
        qkv_bias=generation.qkv_bias or attention_bias,
        o_bias=attention_bias,
        mlp_bias=False,
        head_norms=generation.head_norms,
        tied=read_flag(config, "tie_word_embeddings", False),
        window=window,
        windowed=windowed,
        rotary=(True,) * num_layers,
        rope=rope,
        dtype=read_dtype(config),
    )


def _refuse_chunks(config: Mapping[str, Any]) -> None:
    if config.get("dual_chunk_attention_config"):
        raise UnsupportedModel(
            "dual_chunk_attention_config: attention over chunks of a long context is not supported; a config with null "
            "there runs with ordinary attention, as in transformers"
        )


def _windows(config: Mapping[str, Any], num_layers: int, max_context: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window, and which layers have it: those that `layer_types` names, else those from `max_window_layers` on.

    A window at least as long as any sequence hides nothing, so it is none: any attention backend will do.
    """
    none = (None, (False,) * num_layers)
    listed = read_layer_types(config, num_layers)
    used = read_flag(config, "use_sliding_window", False)
    if not used or ("sliding_window" in config and config["sliding_window"] is None):
        if listed is not None and any(listed):
            entry = "sliding_window is null" if used else "use_sliding_window is not set"
            raise UnsupportedModel(f"layer_types names layers with a sliding window, but {entry}")
        return none
    window = read_count(config, "sliding_window", WINDOW)
    if listed is None:
        first = read_count(config, "max_window_layers", MAX_WINDOW_LAYERS, least=0)
        listed = tuple(layer >= first for layer in range(num_layers))
    return (window, listed) if window < max_context and any(listed) else none
