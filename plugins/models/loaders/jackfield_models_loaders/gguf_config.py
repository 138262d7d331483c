"""The configuration of a GGUF file in Hugging Face's shape. Knows metadata keys, not file layout."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from jackfield.hookspecs import ModelSourceError
from jackfield_models_loaders.ggml_types import PACKED_ENCODINGS, PLAIN_DTYPES
from jackfield_models_loaders.gguf_architectures import ARCHITECTURES, Architecture
from jackfield_models_loaders.gguf_header import GgufHeader
from jackfield_models_loaders.gguf_metadata import Metadata
from jackfield_models_loaders.gguf_rope import rope_parameters

_LAYER = re.compile(r"blk\.(\d+)\.")

GEMMA_LOCAL_THETA, GEMMA_27B_LAYERS = 10000.0, 62

_SAMPLING = {"temp": "temperature", "top_p": "top_p", "min_p": "min_p"}


def find_architecture(metadata: Metadata) -> tuple[str, Architecture]:
    """The file's architecture and its row. Raises ModelSourceError naming what is supported."""
    name = metadata.text("general.architecture")
    if name is None:
        metadata.fail("lacks the metadata entry 'general.architecture'; it is not a model file")
    row = ARCHITECTURES.get(name)
    if row is None:
        metadata.fail(
            f"holds a model of architecture {name!r}; from GGUF files these can be read: {', '.join(ARCHITECTURES)}. "
            "Use the model's safetensors checkpoint, if its architecture is supported"
        )
    for key, minimum in ((f"{name}.expert_count", 1), ("split.count", 2)):
        if (metadata.integer(key) or 0) >= minimum:
            metadata.fail(
                "holds a mixture of experts, which is not supported"
                if key.endswith("expert_count")
                else "is one part of a model that was split into several files; join them with llama-gguf-split --merge"
            )
    return name, row


def make_config(header: GgufHeader, metadata: Metadata) -> dict[str, Any]:
    """Hugging Face's entries for this file. Raises ModelSourceError for what is missing, contradictory or unsupported."""
    name, row = find_architecture(metadata)
    heads = metadata.uniform(f"{name}.attention.head_count")
    if heads is None or heads <= 0:
        metadata.fail(f"lacks a positive {name}.attention.head_count; convert the model again")
    kv_heads = metadata.uniform(f"{name}.attention.head_count_kv")
    hidden = metadata.positive(f"{name}.embedding_length")
    layers = metadata.positive(f"{name}.block_count")
    head_size = _head_size(metadata, name, hidden, heads)
    eps = metadata.number(f"{name}.attention.layer_norm_rms_epsilon")
    if eps is None or eps <= 0.0:
        metadata.fail(f"lacks a positive {name}.attention.layer_norm_rms_epsilon; convert the model again")
    _check_layers(header, metadata, layers)
    config: dict[str, Any] = {
        "architectures": [row.hf_architecture],
        "model_type": row.model_type,
        "vocab_size": _vocab_size(header, metadata, name, hidden),
        "hidden_size": hidden,
        "intermediate_size": metadata.positive(f"{name}.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads if kv_heads is None else kv_heads,
        "head_dim": head_size,
        "hidden_act": row.activation,
        "max_position_embeddings": metadata.positive(f"{name}.context_length"),
        "rms_norm_eps": eps,
        "rope_parameters": rope_parameters(metadata, name, head_size, _rope_divisors(header)),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "dtype": _dtype(header),
    }
    if encodings := _weight_encodings(header):
        config["weight_encodings"] = encodings
    for entry, stem in row.bias_entries.items():
        config[entry] = f"blk.0.{stem}.bias" in header.tensors
    if row.model_type == "mistral":
        config["sliding_window"] = metadata.integer(f"{name}.attention.sliding_window") or None
    elif row.model_type in ("qwen2", "qwen3") and metadata.integer(f"{name}.attention.sliding_window"):
        metadata.fail(
            f"sets {name}.attention.sliding_window, but not which layers have it; use the safetensors checkpoint"
        )
    if row.gemma:
        _to_gemma(config, metadata, name)
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        token = metadata.integer(f"tokenizer.ggml.{key}_token_id")
        if token is not None:
            config[f"{role}_token_id"] = token
    generation = _generation(metadata)
    if generation:
        config["generation_config"] = generation
    return config


def _to_gemma(config: dict[str, Any], metadata: Metadata, name: str) -> None:
    """The entries of Gemma 3: one rope for each kind of layer, a window, the query's scale, a cap.

    The file does not name the scale: it is the head size, but for the 27B model (62 layers), where it is hidden / heads.
    """
    config["hidden_activation"] = config.pop("hidden_act")
    local = metadata.number(f"{name}.rope.freq_base_swa") or GEMMA_LOCAL_THETA
    config["rope_parameters"] = {
        "full_attention": config["rope_parameters"],
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }
    config["sliding_window"] = metadata.positive(f"{name}.attention.sliding_window")
    config["sliding_window_pattern"] = metadata.integer(f"{name}.attention.sliding_window_pattern") or 6
    large = config["num_hidden_layers"] == GEMMA_27B_LAYERS
    scale = config["hidden_size"] // config["num_attention_heads"] if large else config["head_dim"]
    config["query_pre_attn_scalar"] = scale
    config["final_logit_softcapping"] = metadata.number(f"{name}.final_logit_softcapping") or None
    config["attn_logit_softcapping"] = metadata.number(f"{name}.attn_logit_softcapping") or None


def _head_size(metadata: Metadata, name: str, hidden: int, heads: int) -> int:
    key, value = (metadata.integer(f"{name}.attention.{part}_length") for part in ("key", "value"))
    rotary = metadata.integer(f"{name}.rope.dimension_count")
    if key is None and hidden % heads:
        metadata.fail(f"has {heads} heads for {hidden} hidden values and no {name}.attention.key_length")
    size = hidden // heads if key is None else key
    if size <= 0 or size % 2:
        metadata.fail(f"has heads of the impossible size {size}")
    for what, other in (("value heads", value), ("rotary dimensions", rotary)):
        if other is not None and other != size:
            metadata.fail(f"has heads of size {size} with {what} of {other}, which is not supported")
    return size


def _vocab_size(header: GgufHeader, metadata: Metadata, name: str, hidden: int) -> int:
    table = header.tensors.get("token_embd.weight")
    if table is None:
        metadata.fail("lacks the tensor 'token_embd.weight'; fetch the file again")
    if len(table.shape) != 2 or table.shape[1] != hidden:
        metadata.fail(f"tensor 'token_embd.weight' has the shape {table.shape}, not [vocabulary, {hidden}]")
    said = metadata.integer(f"{name}.vocab_size")
    if said is not None and said != table.shape[0]:
        metadata.fail(f"says {name}.vocab_size = {said}, but has embeddings for {table.shape[0]} tokens")
    return table.shape[0]


def _check_layers(header: GgufHeader, metadata: Metadata, layers: int) -> None:
    found = {int(match[1]) for name in header.tensors if (match := _LAYER.match(name))}
    if found != set(range(min(layers, len(header.tensors) + 1))):
        metadata.fail(f"should have layers 0 to {layers - 1}, but holds tensors of {len(found)} layers; fetch it again")


def _rope_divisors(header: GgufHeader) -> np.ndarray[Any, np.dtype[np.float32]] | None:
    tensor = header.tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    if tensor.type.name != "f32":
        raise ModelSourceError(f"{header.path}: tensor 'rope_freqs.weight' is {tensor.type.name}, not f32")
    return header.data(tensor).reshape(-1).view(np.float32)


def _weight_encodings(header: GgufHeader) -> list[str]:
    """The packed encodings of what is multiplied: every matrix but an embedding that has a head of its own beside it."""
    looked_up = {"token_embd.weight"} if "output.weight" in header.tensors else set()
    used = {tensor.type.name for tensor in header.tensors.values() if tensor.name not in looked_up}
    return sorted(used & PACKED_ENCODINGS)


def _dtype(header: GgufHeader) -> str:
    """What the weights were before packing is not recorded; packed ones count as bfloat16, which nearly all were."""
    types = {tensor.type.name for tensor in header.tensors.values() if len(tensor.shape) > 1}
    if types <= {"f32"}:
        return "float32"
    return PLAIN_DTYPES["f16"] if types <= {"f16", "f32"} else PLAIN_DTYPES["bf16"]


def _generation(metadata: Metadata) -> dict[str, Any]:
    """Generation settings: further end tokens, and recommended sampling (`general.sampling.*`)."""
    result: dict[str, Any] = {}
    ends = [metadata.integer(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    known = list(dict.fromkeys(end for end in ends if end is not None))
    if len(known) > 1:
        result["eos_token_id"] = known
    for key, entry in _SAMPLING.items():
        value = metadata.number(f"general.sampling.{key}")
        if value is not None:
            result[entry] = value
    top_k = metadata.integer("general.sampling.top_k")
    if top_k is not None:
        result["top_k"] = top_k
    return result
