"""Changes of a tiny config for tests of models: what must be refused, and what must be right or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NO_SUCH = "no_such_thing"

ROPES: Mapping[str, Mapping[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 3.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
        "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5],
        "original_max_position_embeddings": 32,
        "factor": 4.0,
    },
}
"""For heads of 16 dimensions. The theta is the config's own."""


def right_or_refused(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Entries that transformers follows, so that model code must follow them too or say that it does not."""
    usual: dict[str, tuple[Any, ...]] = {
        "hidden_act": ("gelu", "gelu_pytorch_tanh", "relu", "quick_gelu"),
        "hidden_activation": ("gelu", "relu"),
        "attention_bias": (True,),
        "mlp_bias": (True,),
        "tie_word_embeddings": (not config.get("tie_word_embeddings"),),
        "num_key_value_heads": (1, 4),
        "rms_norm_eps": (0.5,),
        "sliding_window": (7, 1, None),
        "attn_logit_softcapping": (2.0, None),
        "final_logit_softcapping": (3.0, None),
        "query_pre_attn_scalar": (7,),
        "no_rope_layers": ([0, 1, 0],),
    }
    yield from ({key: value} for key, values in usual.items() if key in config for value in values)
    if "use_sliding_window" in config:
        yield {"use_sliding_window": True, "sliding_window": 7, "layer_types": None}
    if "rope_parameters" in config:
        theta = config["rope_parameters"].get("rope_theta", 10000.0)
        yield {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
        yield from ({"rope_parameters": {**rope, "rope_theta": theta}} for rope in ROPES.values())


def refused(config: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(entry, the config with it): nobody can follow these."""
    for key in ("hidden_act", "hidden_activation"):
        if key in config:
            yield key, {**config, key: NO_SUCH}
    if "rope_parameters" in config:
        yield "rope_type", {**config, "rope_parameters": {**config["rope_parameters"], "rope_type": NO_SUCH}}
    yield "quantization_config", {**config, "quantization_config": {"quant_method": NO_SUCH}}
    yield "architectures", {**config, "architectures": [NO_SUCH]}
    yield "dtype", {**config, "dtype": NO_SUCH}
    for key in ("hidden_size", "num_hidden_layers"):
        yield key, {name: value for name, value in config.items() if name != key}
        yield key, {**config, key: "64"}
    if "num_key_value_heads" in config:
        yield "num_key_value_heads", {**config, "num_key_value_heads": 3}
