"""Random weights of the shape that a config describes. Knows the tensor names of the Llama family only.

For measuring and for trying a configuration without its weights: the output is noise. A tensor's values depend on its
name and the seed alone, so that every rank and every process makes the same ones.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSource, ModelSourceError, Shard, TokenizerFiles, Weight
from jackfield_models_loaders.hf_config import read_config
from jackfield_models_loaders.hf_tokenizer import read_chat_templates, read_tokenizer
from jackfield_models_loaders.json_file import merged, read_object
from jackfield_models_loaders.options import DummyOptions

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
DTYPES = ("float32", "float16", "bfloat16")
DEFAULT_SCALE = 0.02


class DummySource(ModelSource):
    """A directory with a config.json, or a JSON file in its shape; a tokenizer is used if it lies there."""

    def __init__(self, path: Path, overrides: Mapping[str, Any], options: DummyOptions) -> None:
        if not path.is_dir() and path.suffix != ".json":
            raise ModelSourceError(
                f"{path}: random weights need a directory with a config.json, or a JSON file in its shape"
            )
        self.path = path
        self.directory = path if path.is_dir() else path.parent
        self.options = options
        self._config = merged(read_config(path) if path.is_dir() else read_object(path), overrides)

    def config(self) -> dict[str, Any]:
        return copy.deepcopy(self._config)

    def tokenizer(self) -> TokenizerFiles:
        return read_tokenizer(self.directory)

    def chat_templates(self) -> Mapping[str, str]:
        return read_chat_templates(self.directory)

    def weights(self, shard: Shard) -> Iterator[Weight]:
        shapes = self._shapes()
        dtype = self._config.get("dtype") or self._config.get("torch_dtype") or "float32"
        if dtype not in DTYPES:
            raise ModelSourceError(f"{self.path}: has the dtype {dtype!r}; random weights can be {', '.join(DTYPES)}")
        scale = self.options.scale or self._config.get("initializer_range") or DEFAULT_SCALE
        return (self._weight(name, shape, dtype, float(scale)) for name, shape in shapes.items())

    def _weight(self, name: str, shape: tuple[int, ...], dtype: str, scale: float) -> Weight:
        if name.endswith("norm.weight"):
            values = np.ones(shape, dtype=np.float32)
        else:
            draw = np.random.Generator(np.random.SFC64([self.options.seed, zlib.crc32(name.encode())]))
            values = draw.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        return Weight(name=name, encoding="plain", dtype=dtype, shape=shape, parts={"data": _as_bytes(values, dtype)})

    def _number(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key)
        if value is None:
            value = default
        if type(value) is not int or value <= 0:
            raise ModelSourceError(f"{self.path}: {key} is {value!r}, not a positive number")
        return value

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        architectures = self._config.get("architectures") or []
        if not isinstance(architectures, list) or not set(architectures) & set(ARCHITECTURES):
            raise ModelSourceError(
                f"{self.path}: has the architectures {architectures!r}; random weights can be made for "
                f"{', '.join(ARCHITECTURES)}"
            )
        hidden, vocab = self._number("hidden_size"), self._number("vocab_size")
        inner, heads = self._number("intermediate_size"), self._number("num_attention_heads")
        kv_heads = self._number("num_key_value_heads", heads)
        size = self._number("head_dim", hidden // heads)
        linears = {
            "self_attn.q_proj": (heads * size, hidden),
            "self_attn.k_proj": (kv_heads * size, hidden),
            "self_attn.v_proj": (kv_heads * size, hidden),
            "self_attn.o_proj": (hidden, heads * size),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
        for layer in range(self._number("num_hidden_layers")):
            prefix = f"model.layers.{layer}."
            for norm in ("input_layernorm", "post_attention_layernorm"):
                shapes[f"{prefix}{norm}.weight"] = (hidden,)
            for stem, shape in linears.items():
                shapes[f"{prefix}{stem}.weight"] = shape
                if self._config.get("attention_bias" if stem.startswith("self_attn") else "mlp_bias"):
                    shapes[f"{prefix}{stem}.bias"] = shape[:1]
        shapes["model.norm.weight"] = (hidden,)
        if not self._config.get("tie_word_embeddings", False):
            shapes["lm_head.weight"] = (vocab, hidden)
        return shapes


def _as_bytes(values: NDArray[np.float32], dtype: str) -> NDArray[np.uint8]:
    flat = values.reshape(-1)
    if dtype == "float32":
        return flat.view(np.uint8)
    if dtype == "float16":
        return flat.astype(np.float16).view(np.uint8)
    bits = flat.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
    return (rounded >> np.uint32(16)).astype(np.uint16).view(np.uint8)
