"""A Hugging Face checkpoint with safetensors weights as a model source. Knows which files belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jackfield.hookspecs import ModelSource, ModelSourceError, Shard, TokenizerFiles, Weight
from jackfield_models_loaders.hf_config import read_config
from jackfield_models_loaders.hf_tokenizer import read_chat_templates, read_tokenizer
from jackfield_models_loaders.json_file import merged, read_object
from jackfield_models_loaders.mapped_file import forgetting
from jackfield_models_loaders.safetensors_header import PLAIN_DTYPES, SafetensorsFile, StoredTensor

INDEX_SUFFIX = ".safetensors.index.json"
BUFFERS = ("position_ids", "token_type_ids")
SINGLE = "model.safetensors"
_SHARD = re.compile(r".*-\d+-of-\d+\.safetensors")


class SafetensorsSource(ModelSource):
    """A directory, one `.safetensors` file or one index; config and tokenizer lie beside the weights.

    Weight headers are read by `weights`, so that a process which needs only the tokenizer opens no weight file.
    """

    def __init__(self, path: Path, overrides: Mapping[str, Any] | None = None) -> None:
        if not path.exists():
            raise ModelSourceError(f"{path}: does not exist; check --model-path")
        self.path = path
        self.directory = path if path.is_dir() else path.parent
        self._overrides = overrides or {}

    def config(self) -> dict[str, Any]:
        return merged(read_config(self.directory), self._overrides)

    def tokenizer(self) -> TokenizerFiles:
        return read_tokenizer(self.directory)

    def chat_templates(self) -> Mapping[str, str]:
        return read_chat_templates(self.directory)

    def files(self) -> tuple[Path, ...]:
        found = _weight_file(self.path)
        if not found.name.endswith(INDEX_SUFFIX):
            return (found,)
        return (found, *(found.parent / name for name in sorted(set(_read_index(found).values()))))

    def weights(self, shard: Shard) -> Iterator[Weight]:
        plan = [(file, tensor) for file, tensor in self._plan() if not _counts(tensor)]
        for file, tensor in plan:
            if tensor.dtype not in PLAIN_DTYPES:
                raise ModelSourceError(
                    f"{file.path}: tensor {tensor.name!r} has the dtype {tensor.dtype}; "
                    f"{', '.join(PLAIN_DTYPES)} can be read: use a checkpoint that is not quantised"
                )
        return forgetting((file.file, tensor.nbytes, _weight(file, tensor)) for file, tensor in plan)

    def _plan(self) -> list[tuple[SafetensorsFile, StoredTensor]]:
        """Every tensor with its file, in file order, all headers checked."""
        found = _weight_file(self.path)
        if not found.name.endswith(INDEX_SUFFIX):
            file = SafetensorsFile(found)
            return [(file, tensor) for tensor in file.tensors.values()]
        weight_map = _read_index(found)
        files = {name: _open_shard(found, name) for name in sorted(set(weight_map.values()))}
        for tensor_name, file_name in weight_map.items():
            if tensor_name not in files[file_name].tensors:
                raise ModelSourceError(
                    f"{found}: says that {tensor_name!r} lies in {file_name}, but it does not; "
                    "index and weights are of different checkpoints: fetch both again"
                )
        plan: list[tuple[SafetensorsFile, StoredTensor]] = []
        seen: dict[str, str] = {}
        for file_name, file in files.items():
            for tensor in file.tensors.values():
                if tensor.name in seen:
                    raise ModelSourceError(
                        f"{found}: tensor {tensor.name!r} lies in {seen[tensor.name]} and again in {file_name}; "
                        "shards of different checkpoints are mixed: fetch them again"
                    )
                seen[tensor.name] = file_name
                plan.append((file, tensor))
        return plan


def _counts(tensor: StoredTensor) -> bool:
    """Whether it is 0, 1, 2, ...: a buffer that old versions of transformers stored with the weights."""
    return tensor.dtype == "I64" and tensor.name.rpartition(".")[2] in BUFFERS


def _weight(file: SafetensorsFile, tensor: StoredTensor) -> Weight:
    return Weight(
        name=tensor.name,
        encoding="plain",
        dtype=PLAIN_DTYPES[tensor.dtype],
        shape=tensor.shape,
        parts={"data": file.data(tensor)},
    )


def _weight_file(path: Path) -> Path:
    """The file to begin with: a weight file or an index. `model.safetensors` before an index, as in transformers."""
    if not path.is_dir():
        if _SHARD.fullmatch(path.name):
            raise ModelSourceError(f"{path}: is one shard of several; name its directory {path.parent}")
        return path
    if (path / SINGLE).exists():
        return path / SINGLE
    indexes = sorted(path.glob("*" + INDEX_SUFFIX))
    files = sorted(path.glob("*.safetensors"))
    if len(indexes) == 1:
        return indexes[0]
    if len(files) == 1 and not indexes and not _SHARD.fullmatch(files[0].name):
        return files[0]
    if indexes:
        raise ModelSourceError(f"{path}: holds {len(indexes)} indexes; name one of {_names(indexes)} as --model-path")
    if not files:
        raise ModelSourceError(
            f"{path}: holds no .safetensors file (it holds {_names(sorted(path.iterdir())) or 'nothing'}); "
            "other weight formats must be converted"
        )
    raise ModelSourceError(
        f"{path}: holds {_names(files)} but no index (*{INDEX_SUFFIX}) that says how they belong together; "
        "fetch the index, or name one file as --model-path"
    )


def _names(paths: list[Path]) -> str:
    shown = ", ".join(path.name for path in paths[:8])
    return f"{shown} and {len(paths) - 8} more" if len(paths) > 8 else shown


def _read_index(path: Path) -> dict[str, str]:
    weight_map = read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelSourceError(f"{path}: has no weight_map; fetch the file again")
    for tensor, name in weight_map.items():
        # a plain name: an index may not point out of its directory
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise ModelSourceError(
                f"{path}: puts {tensor!r} into {name!r}, which is not the name of a file beside it; "
                "do not use this checkpoint unless you know why"
            )
    return weight_map


def _open_shard(index: Path, name: str) -> SafetensorsFile:
    path = index.parent / name
    if not path.exists():
        raise ModelSourceError(f"{path}: is missing, but {index.name} names it; fetch the checkpoint again")
    return SafetensorsFile(path)
