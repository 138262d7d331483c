"""A GGUF file as a model source. Weights stay packed as they lie in the file; nothing is decoded here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
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
from jackfield_models_loaders.mapped_file import forgetting

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

    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def weights(self, shard: Shard) -> Iterator[Weight]:
        name, row = find_architecture(self.metadata)
        plan = [(self._hf_name(row, tensor), tensor) for tensor in self.header.tensors.values()]
        heads = {stem: self._heads(name, key) for stem, key in row.permuted.items()}
        for _, tensor in plan:
            self._check(tensor, heads)
            if row.gemma and _is_norm(tensor) and tensor.type.name != "f32":
                raise ModelSourceError(f"{self.path}: tensor {tensor.name!r} is {tensor.type.name}, not f32")
        return forgetting(
            (self.header.file, tensor.nbytes, self._weight(hf_name, tensor, heads, row.gemma and _is_norm(tensor)))
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

    def _weight(self, name: str, tensor: GgufTensor, heads: Mapping[str, int], less_one: bool) -> Weight:
        data = self.header.data(tensor)
        dtype = PLAIN_DTYPES.get(tensor.type.name)
        plain = dtype is not None
        if plain:
            data = data.reshape(-1)
        count = heads.get(_stem(tensor))
        parts: Mapping[str, NDArray[np.uint8]] = {"data": data}
        if less_one:
            parts = MadeWhenRead("data", lambda: (data.view(np.float32) - np.float32(1)).view(np.uint8))
        elif count is not None:
            parts = MadeWhenRead("data", lambda: _halves(data, tensor, count))
        return Weight(
            name=name,
            encoding="plain" if plain else tensor.type.name,
            dtype=dtype or "float32",  # ggml's blocks decode to float32
            shape=tensor.shape,
            parts=parts,
        )


class MadeWhenRead(Mapping[str, NDArray[np.uint8]]):
    """A weight's only part, which differs from the file and is made when somebody asks for it: nobody does for a weight whose
    packed form is kept."""

    def __init__(self, name: str, make: Callable[[], NDArray[np.uint8]]) -> None:
        self._name = name
        self._make = make

    def __getitem__(self, name: str) -> NDArray[np.uint8]:
        if name != self._name:
            raise KeyError(name)
        return self._made

    @cached_property
    def _made(self) -> NDArray[np.uint8]:
        return self._make()

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1


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
