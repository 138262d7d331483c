"""A folder of .npz archives, zip files of .npy members. Headers are read first; then one tensor at a time is in memory."""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from jackfield.hookspecs import ModelSource, ModelSourceError, Shard, TokenizerFiles, Weight

DTYPES = {"<f4": "float32", "<f2": "float16", "<u2": "bfloat16"}
BROKEN = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    TokenError,
)
"""What zipfile and NumPy raise over a file that is cut off or spoilt."""


class NpzSource(ModelSource):
    def __init__(self, path: Path, overrides: Mapping[str, Any]) -> None:
        self._folder = path if path.is_dir() else path.parent
        self._files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
        self._overrides = overrides

    def config(self) -> dict[str, Any]:
        config = _json(self._folder / "config.json")
        generation = self._folder / "generation_config.json"
        return _over(
            config | ({"generation_config": _json(generation)} if generation.exists() else {}), self._overrides
        )

    def tokenizer(self) -> TokenizerFiles:
        file = self._folder / "tokenizer_config.json"
        settings = _json(file) if file.exists() else {}
        roles = ("bos_token", "eos_token", "pad_token", "unk_token")
        return TokenizerFiles(
            tokenizer_json=_read(self._folder / "tokenizer.json"),
            special_tokens={role: settings[role] for role in roles if isinstance(settings.get(role), str)},
            chat_template=settings.get("chat_template"),
        )

    def weights(self, shard: Shard) -> Iterator[Weight]:
        found = [(file, member) for file in self._files for member in _checked_members(file)]
        if not found:
            raise ModelSourceError(f"{self._folder}: there is no .npz archive with tensors here")
        return (_weight(file, member) for file, member in found)


def _checked_members(file: Path) -> list[str]:
    """The tensors of an archive, each with a header that can be read and as many bytes as that says."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            for info in members:
                with archive.open(info) as stream:
                    version = np.lib.format.read_magic(stream)
                    read = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, by_column, dtype = read(stream)
                    header = stream.tell()
                wrong = None
                if dtype.str not in DTYPES:
                    wrong = f"has the dtype {dtype.str}; read are {', '.join(DTYPES)}"
                elif by_column and len(shape) > 1:
                    wrong = "lies in column order; save it with np.ascontiguousarray"
                elif info.file_size != header + math.prod(shape) * dtype.itemsize:
                    wrong = f"has {info.file_size - header} bytes for the shape {list(shape)}"
                if wrong is not None:
                    raise ModelSourceError(f"{file}: {info.filename} {wrong}")
            return [info.filename for info in members]
    except BROKEN as error:
        raise ModelSourceError(f"{file}: cannot be read as a NumPy archive: {error}") from error


def _weight(file: Path, member: str) -> Weight:
    try:
        with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    except BROKEN as error:
        raise ModelSourceError(f"{file}: {member} cannot be read: {error}") from error
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    name, dtype = member.removesuffix(".npy"), DTYPES[array.dtype.str]
    return Weight(name=name, encoding="plain", dtype=dtype, shape=array.shape, parts={"data": data})


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelSourceError(f"{file}: cannot be read: {error.strerror}") from error


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read(file))
    except ValueError as error:
        raise ModelSourceError(f"{file}: is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelSourceError(f"{file}: holds no JSON object")
    return value


def _over(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), dict)
        base[key] = _over(base[key], value) if both else value
    return base
