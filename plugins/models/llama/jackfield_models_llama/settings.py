"""A Llama-family config as one checked record, with the defaults that transformers has for each architecture.

No torch. Every refusal is an UnsupportedModel that names the config entry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jackfield.hookspecs import UnsupportedModel
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

# Hugging Face's names -> the contract's
ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {
        "silu": "silu",
        "swish": "silu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu": "relu",
    }
)

MAX_LAYERS, MAX_COUNT = 4096, 2**31 - 1
"""A config is untrusted: each layer is an object before any weight is looked at, and sizes end in 32 bit counts."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the model's code needs. Whole-model numbers, before any rank's share.

    window   None: every token before it is seen in all layers
    windowed   a bool a layer: whether it has the window
    rotary   a bool a layer
    rope     the config's rotary entries, with the family's default theta filled in, for `Builder.rotary`
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
    attention_bias: bool
    mlp_bias: bool
    tied: bool
    window: int | None
    windowed: tuple[bool, ...]
    rotary: tuple[bool, ...]
    rope: Mapping[str, Any]
    dtype: str


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Raises UnsupportedModel."""
    architecture = _architecture(config)
    family = FAMILIES[architecture]
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unknown")
        raise UnsupportedModel(f"quantization_config: checkpoints quantised by {method!r} are not read")

    num_heads = _count(config, "num_attention_heads")
    hidden_size = _count(config, "hidden_size")
    num_kv_heads = _count(config, "num_key_value_heads", family.kv_heads or num_heads)
    if num_heads % num_kv_heads:
        raise UnsupportedModel(
            f"num_key_value_heads: {num_heads} heads cannot be grouped evenly over {num_kv_heads} KV heads"
        )
    if config.get("head_dim") is None and hidden_size % num_heads:
        raise UnsupportedModel(
            f"head_dim is not given, and hidden_size {hidden_size} is not a multiple of {num_heads} heads"
        )
    head_size = _count(config, "head_dim", hidden_size // num_heads)

    rope = config
    if family.theta != DEFAULT_THETA and config.get("rope_theta") is None:
        rope = {**config, "rope_theta": family.theta}  # one inside rope_parameters still goes first
    if config.get("max_position_embeddings") is None:
        rope = {**rope, "max_position_embeddings": family.max_position}
    parsed = parse_rope(rope, head_size=head_size)
    if parsed.rotary_size != head_size:
        raise UnsupportedModel(f"partial_rotary_factor: {architecture} turns whole heads")

    max_context = stretched_context(rope, default_max_position=family.max_position)
    num_layers = _count(config, "num_hidden_layers")
    rotary = _rotary_layers(config, family, num_layers)
    window = _window(config, family, max_context)
    windowed = _windowed_layers(config, family, rotary) if window is not None else (False,) * num_layers
    return Settings(
        architecture=architecture,
        vocab_size=_count(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_count(config, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        max_context=max_context,
        eps=_eps(config),
        activation=_activation(config),
        attention_bias=family.biases and _flag(config, "attention_bias", False),
        mlp_bias=family.biases and _flag(config, "mlp_bias", False),
        tied=_flag(config, "tie_word_embeddings", family.tied),
        window=window if any(windowed) else None,
        windowed=windowed,
        rotary=rotary,
        rope=rope,
        dtype=_dtype(config),
    )


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures") or []
    for architecture in named:
        if architecture in FAMILIES:
            return str(architecture)
    raise UnsupportedModel(f"architectures: {list(named)} has none of {', '.join(FAMILIES)}")


def _count(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        if default is None:
            raise UnsupportedModel(f"{key} is missing from the config")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnsupportedModel(f"{key} must be a whole number above 0, not {value!r}")
    most = MAX_LAYERS if key == "num_hidden_layers" else MAX_COUNT
    if value > most:
        raise UnsupportedModel(f"{key} is {value}; more than {most} is taken for a broken config")
    return value


def _flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UnsupportedModel(f"{key} must be true or false, not {value!r}")
    return value


def _eps(config: Mapping[str, Any]) -> float:
    value = config.get("rms_norm_eps", 1e-6)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise UnsupportedModel(f"rms_norm_eps must be a number of at least 0, not {value!r}")
    return float(value)


def _activation(config: Mapping[str, Any]) -> str:
    name = config.get("hidden_act")
    if name is None:
        return "silu"
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UnsupportedModel(f"hidden_act {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _window(config: Mapping[str, Any], family: Family, max_context: int) -> int | None:
    """A window at least as long as any sequence hides nothing, so it is none: any attention backend will do."""
    if family.layer_windows:
        if not _flag(config, "use_sliding_window", False) or config.get("sliding_window") is None:
            return None
    elif family.window is None or ("sliding_window" in config and config["sliding_window"] is None):
        return None
    window = _count(config, "sliding_window", family.window)
    return None if window >= max_context else window


def _windowed_layers(config: Mapping[str, Any], family: Family, rotary: tuple[bool, ...]) -> tuple[bool, ...]:
    if not family.layer_windows:
        return (True,) * len(rotary)
    listed = config.get("layer_types")
    if listed is None:
        return tuple(not turns for turns in rotary)
    known = ("full_attention", "sliding_attention")
    if not isinstance(listed, list) or len(listed) != len(rotary) or any(one not in known for one in listed):
        raise UnsupportedModel(f"layer_types must list one of {', '.join(known)} for each of the {len(rotary)} layers")
    return tuple(one == "sliding_attention" for one in listed)


def _rotary_layers(config: Mapping[str, Any], family: Family, num_layers: int) -> tuple[bool, ...]:
    if family.nope_interval is None:
        return (True,) * num_layers
    listed = config.get("no_rope_layers")  # despite its name, 1 stands for a layer *with* rotary
    if listed is not None:
        if not isinstance(listed, list) or len(listed) < num_layers or any(one not in (0, 1) for one in listed):
            raise UnsupportedModel(f"no_rope_layers must list a 0 or 1 for each of the {num_layers} layers")
        return tuple(bool(one) for one in listed[:num_layers])
    interval = _count(config, "no_rope_layer_interval", family.nope_interval)
    return tuple((layer + 1) % interval != 0 for layer in range(num_layers))


def _dtype(config: Mapping[str, Any]) -> str:
    """transformers writes float32 models without saying so, and older versions wrote `torch_dtype`."""
    value = config.get("dtype") or config.get("torch_dtype") or "float32"
    name = str(value).removeprefix("torch.")
    if name not in ("float32", "float16", "bfloat16"):
        raise UnsupportedModel(f"dtype {value!r} is not supported; known: float32, float16, bfloat16")
    return name
