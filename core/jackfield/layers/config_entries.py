"""Entries of a Hugging Face config, read one at a time and checked. No torch: `describe` functions use it.

Every refusal is an UnsupportedModel that names the entry. Knows no architecture: what an entry means where it is missing
is for the caller to say. An entry that is null counts as missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from jackfield.hookspecs import UnsupportedModel

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
"""Hugging Face's names -> the contract's."""

DTYPES = ("float32", "float16", "bfloat16")
LAYER_TYPES = ("full_attention", "sliding_attention")

MAX_LAYERS, MAX_COUNT = 4096, 2**31 - 1
"""A config is untrusted: each layer is an object before any weight is looked at, and sizes end in 32 bit counts."""


def read_architecture(config: Mapping[str, Any], known: Iterable[str]) -> str:
    """The first of `architectures` that is known."""
    named = config.get("architectures") or []
    for architecture in named:
        if architecture in known:
            return str(architecture)
    raise UnsupportedModel(f"architectures: {list(named)} has none of {', '.join(known)}")


def refuse_quantised(config: Mapping[str, Any]) -> None:
    """Raise for a checkpoint whose weights are packed in a way that its config describes."""
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unknown")
        raise UnsupportedModel(f"quantization_config: checkpoints quantised by {method!r} are not read")


def refuse_non_causal(config: Mapping[str, Any]) -> None:
    """Raise where transformers would let a token see later ones, as checkpoints for embedding do."""
    if not read_flag(config, "is_causal", True):
        raise UnsupportedModel(
            "is_causal: attention to later tokens is not supported by model code that generates text"
        )


def read_count(config: Mapping[str, Any], key: str, default: int | None = None, *, least: int = 1) -> int:
    """A whole number of at least `least`; without a default it must be there."""
    value = config.get(key)
    if value is None:
        if default is None:
            raise UnsupportedModel(f"{key} is missing from the config")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UnsupportedModel(f"{key} must be a whole number above {least - 1}, not {value!r}")
    most = MAX_LAYERS if key == "num_hidden_layers" else MAX_COUNT
    if value > most:
        raise UnsupportedModel(f"{key} is {value}; more than {most} is taken for a broken config")
    return value


def read_flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UnsupportedModel(f"{key} must be true or false, not {value!r}")
    return value


def read_eps(config: Mapping[str, Any], key: str = "rms_norm_eps", default: float = 1e-6) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise UnsupportedModel(f"{key} must be a number of at least 0, not {value!r}")
    return float(value)


def read_activation(config: Mapping[str, Any], key: str = "hidden_act", default: str = "silu") -> str:
    """The contract's name of the activation."""
    name = config.get(key)
    if name is None:
        return default
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UnsupportedModel(f"{key} {name!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def read_dtype(config: Mapping[str, Any]) -> str:
    """transformers writes float32 models without saying so, and older versions wrote `torch_dtype`."""
    value = config.get("dtype") or config.get("torch_dtype") or "float32"
    name = str(value).removeprefix("torch.")
    if name not in DTYPES:
        raise UnsupportedModel(f"dtype {value!r} is not supported; known: {', '.join(DTYPES)}")
    return name


def read_kv_heads(config: Mapping[str, Any], num_heads: int, default: int) -> int:
    """`num_key_value_heads`, which must divide the heads. As in transformers, null stands for as many as heads."""
    null = "num_key_value_heads" in config and config["num_key_value_heads"] is None
    found = read_count(config, "num_key_value_heads", num_heads if null else default)
    if num_heads % found:
        raise UnsupportedModel(f"num_key_value_heads: {num_heads} heads cannot be grouped evenly over {found} KV heads")
    return found


def read_head_size(config: Mapping[str, Any], hidden_size: int, num_heads: int, default: int | None = None) -> int:
    """`head_dim`; where it is missing the default, or with none the heads' even share of the hidden size."""
    if config.get("head_dim") is None and default is None and hidden_size % num_heads:
        raise UnsupportedModel(
            f"head_dim is not given, and hidden_size {hidden_size} is not a multiple of {num_heads} heads"
        )
    return read_count(config, "head_dim", hidden_size // num_heads if default is None else default)


def read_layer_types(config: Mapping[str, Any], num_layers: int) -> tuple[bool, ...] | None:
    """Whether each layer is one with a sliding window, by `layer_types`; None where the config has no such list."""
    listed = config.get("layer_types")
    if listed is None:
        return None
    if not isinstance(listed, list) or len(listed) != num_layers or any(one not in LAYER_TYPES for one in listed):
        raise UnsupportedModel(
            f"layer_types must list one of {', '.join(LAYER_TYPES)} for each of the {num_layers} layers"
        )
    return tuple(one == "sliding_attention" for one in listed)
