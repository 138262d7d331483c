"""A Llama-family config as `DecoderSettings`, with the defaults that transformers has for each architecture.

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
from jackfield.layers.rope_config import DEFAULT_THETA, parse_rope, stretched_context


@dataclass(frozen=True, kw_only=True)
class Family:
    """What an architecture assumes where its config is silent.

    kv_heads       None: as many as attention heads
    window         None: the architecture has no sliding window unless `layer_windows`, whatever the config says
    layer_windows  with `use_sliding_window`, the layers have one that `layer_types` names, else those without rotary
    biases         whether `attention_bias` and `mlp_bias` mean anything
    nope_interval  every so many-th layer goes without rotary; None: all layers have it
    """

    kv_heads: int | None
    max_position: int
    tied: bool
    theta: float = DEFAULT_THETA
    window: int | None = None
    biases: bool = True
    nope_interval: int | None = None
    layer_windows: bool = False


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "LlamaForCausalLM": Family(kv_heads=None, max_position=2048, tied=False),
        "MistralForCausalLM": Family(kv_heads=8, max_position=131072, tied=False, window=4096, biases=False),
        "SmolLM3ForCausalLM": Family(
            kv_heads=4, max_position=32768, tied=True, theta=2e6, nope_interval=4, layer_windows=True
        ),
    }
)


def read_settings(config: Mapping[str, Any]) -> DecoderSettings:
    """Raises UnsupportedModel."""
    architecture = read_architecture(config, FAMILIES)
    family = FAMILIES[architecture]
    refuse_quantised(config)
    refuse_non_causal(config)

    num_heads = read_count(config, "num_attention_heads")
    hidden_size = read_count(config, "hidden_size")
    num_kv_heads = read_kv_heads(config, num_heads, family.kv_heads or num_heads)
    head_size = read_head_size(config, hidden_size, num_heads)

    rope = config
    if family.theta != DEFAULT_THETA and config.get("rope_theta") is None:
        rope = {**config, "rope_theta": family.theta}  # one inside rope_parameters still goes first
    if config.get("max_position_embeddings") is None:
        rope = {**rope, "max_position_embeddings": family.max_position}
    parsed = parse_rope(rope, head_size=head_size)
    if parsed.rotary_size != head_size:
        raise UnsupportedModel(f"partial_rotary_factor: {architecture} turns whole heads")

    max_context = stretched_context(rope, default_max_position=family.max_position)
    num_layers = read_count(config, "num_hidden_layers")
    rotary = _rotary_layers(config, family, num_layers)
    window = _window(config, family, max_context)
    windowed = _windowed_layers(config, family, rotary) if window is not None else (False,) * num_layers
    attention_bias = family.biases and read_flag(config, "attention_bias", False)
    return DecoderSettings(
        architecture=architecture,
        vocab_size=read_count(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=read_count(config, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        max_context=max_context,
        eps=read_eps(config),
        activation=read_activation(config),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=family.biases and read_flag(config, "mlp_bias", False),
        tied=read_flag(config, "tie_word_embeddings", family.tied),
        window=window if any(windowed) else None,
        windowed=windowed,
        rotary=rotary,
        rope=rope,
        dtype=read_dtype(config),
    )


def _window(config: Mapping[str, Any], family: Family, max_context: int) -> int | None:
    """A window at least as long as any sequence hides nothing, so it is none: any attention backend will do."""
    if family.layer_windows:
        if not read_flag(config, "use_sliding_window", False) or config.get("sliding_window") is None:
            return None
    elif family.window is None or ("sliding_window" in config and config["sliding_window"] is None):
        return None
    window = read_count(config, "sliding_window", family.window)
    return None if window >= max_context else window


def _windowed_layers(config: Mapping[str, Any], family: Family, rotary: tuple[bool, ...]) -> tuple[bool, ...]:
    if not family.layer_windows:
        return (True,) * len(rotary)
    listed = read_layer_types(config, len(rotary))
    return tuple(not turns for turns in rotary) if listed is None else listed


def _rotary_layers(config: Mapping[str, Any], family: Family, num_layers: int) -> tuple[bool, ...]:
    if family.nope_interval is None:
        return (True,) * num_layers
    listed = config.get("no_rope_layers")  # despite its name, 1 stands for a layer *with* rotary
    if listed is not None:
        if not isinstance(listed, list) or len(listed) < num_layers or any(one not in (0, 1) for one in listed):
            raise UnsupportedModel(f"no_rope_layers must list a 0 or 1 for each of the {num_layers} layers")
        return tuple(bool(one) for one in listed[:num_layers])
    interval = read_count(config, "no_rope_layer_interval", family.nope_interval)
    return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
