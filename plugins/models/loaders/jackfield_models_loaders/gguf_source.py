"""A GGUF file as a model source. Weights stay packed as they lie in the file; nothing is decoded here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import ModelSource, ModelSourceError, Shard, TokenizerFiles, Weight
from jackfield_models_loaders.ggml_types import PACKED_ENCODINGS, PLAIN_DTYPES
from jackfield_models_loaders.gguf_architectures import Architecture
from jackfield_models_loaders.gguf_config import find_architecture, make_config
from jackfield_models_loaders.gguf_header import GgufHeader, GgufTensor
from jackfield_models_loaders.gguf_metadata import Metadata
from jackfield_models_loaders.gguf_tokenizer import chat_templates, make_tokenizer
from jackfield_models_loaders.json_file import merged

_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.([a-z0-9_]+)\.(weight|bias)")


class GgufSource(ModelSource):
    """One GGUF file, or the only one of a directory."""

    def __init__(self, path: Path, overrides: Mapping[str, Any] | None = None) -> None:
        self.path = _only_file(path) if path.is_dir() else path
        self.header = GgufHeader(self.path)
        self.metadata = Metadata(self.header)
        self._overrides = overrides or {}

    def config(self) -> dict[str, Any]:
        return merged(make_config(self.header, self.metadata), self._overrides)

    def tokenizer(self) -> TokenizerFiles:
        vocab_size = make_config(self.header, self.metadata)["vocab_size"]
        return make_tokenizer(self.metadata, vocab_size)

    def chat_templates(self) -> Mapping[str, str]:
        nameless, named = chat_templates(self.metadata)
        return named if nameless is None else {**named, "default": nameless}

    def weights(self, shard: Shard) -> Iterator[Weight]:
        name, row = find_architecture(self.metadata)
        plan = [(self._hf_name(row, tensor), tensor) for tensor in self.header.tensors.values()]
        heads = {stem: self._heads(name, key) for stem, key in row.permuted.items()}
        for _, tensor in plan:
            self._check(tensor, heads)
            if row.gemma and _is_norm(tensor) and tensor.type.name != "f32":
                raise ModelSourceError(f"{self.path}: tensor {tensor.name!r} is {tensor.type.name}, not f32")
        return (
            self._weight(hf_name, tensor, heads, less_one=row.gemma and _is_norm(tensor))
            for hf_name, tensor in plan
            if hf_name is not None
        )

    def _hf_name(self, row: Architecture, tensor: GgufTensor) -> str | None:
        """The tensor's name in Hugging Face's layout; None for one that only repeats the configuration."""
        if tensor.name in row.derived:
            return None
        if match := _LAYER_TENSOR.fullmatch(tensor.name):
            layer, stem, part = match.groups()
            if stem in row.layer_tensors:
                return f"model.layers.{int(layer)}.{row.layer_tensors[stem]}.{part}"
        stem, _, part = tensor.name.rpartition(".")
        if stem in row.tensors and part in ("weight", "bias"):
            return f"{row.tensors[stem]}.{part}"
        raise ModelSourceError(
            f"{self.path}: holds the tensor {tensor.name!r}, which {row.hf_architecture} does not have here; "
            "use the model's safetensors checkpoint, if its architecture is supported"
        )

    def _heads(self, name: str, key: str) -> int:
        heads = self.metadata.uniform(f"{name}.{key}")
        if heads is None:
            heads = self.metadata.uniform(f"{name}.attention.head_count")
        if heads is None or heads <= 0:
            raise ModelSourceError(f"{self.path}: lacks a positive {name}.{key}; convert the model again")
        return heads

    def _check(self, tensor: GgufTensor, heads: Mapping[str, int]) -> None:
        kind = tensor.type.name
        if kind not in PLAIN_DTYPES and kind not in PACKED_ENCODINGS:
            readable = ", ".join((*PLAIN_DTYPES, *sorted(PACKED_ENCODINGS)))
            raise ModelSourceError(
                f"{self.path}: tensor {tensor.name!r} has the type {kind}; these can be read: {readable}. "
                "Choose a file with another quantisation, such as Q8_0"
            )
        count = heads.get(_stem(tensor))
        if count is not None and tensor.shape[0] % (2 * count):
            raise ModelSourceError(
                f"{self.path}: tensor {tensor.name!r} has {tensor.shape[0]} rows, not an even number for each of "
                f"{count} heads; fetch the file again"
            )

    def _weight(self, name: str, tensor: GgufTensor, heads: Mapping[str, int], *, less_one: bool = False) -> Weight:
        data = self.header.data(tensor)
        if less_one:
            data = (data.reshape(-1).view(np.float32) - np.float32(1)).view(np.uint8)
        count = heads.get(_stem(tensor))
        if count is not None:
            data = _halves(data, tensor, count)
        dtype = PLAIN_DTYPES.get(tensor.type.name)
        if dtype is not None:
            return Weight(
                name=name, encoding="plain", dtype=dtype, shape=tensor.shape, parts={"data": data.reshape(-1)}
            )
        # ggml's blocks decode to float32
        return Weight(name=name, encoding=tensor.type.name, dtype="float32", shape=tensor.shape, parts={"data": data})


def _is_norm(tensor: GgufTensor) -> bool:
    return tensor.name.endswith("norm.weight")


def _stem(tensor: GgufTensor) -> str:
    match = _LAYER_TENSOR.fullmatch(tensor.name)
    return match[2] if match else ""


def _halves(data: NDArray[np.uint8], tensor: GgufTensor, heads: int) -> NDArray[np.uint8]:
    """Rows from llama.cpp's rotary order (x0 y0 x1 y1 ...) to Hugging Face's (x0 x1 ... y0 y1 ...), head by head.

    Works on whole rows, so packed ones stay packed. A bias has one element a row.
    """
    outputs = tensor.shape[0]
    rows = data.reshape(heads, outputs // heads // 2, 2, data.size // outputs)
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(data.shape)


def _only_file(directory: Path) -> Path:
    files = sorted(directory.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    if not files:
        raise ModelSourceError(f"{directory}: holds no .gguf file; name the file, or choose another --load-format")
    raise ModelSourceError(
        f"{directory}: holds {len(files)} .gguf files ({', '.join(file.name for file in files)}); "
        "name one of them as --model-path"
    )
