"""Typed access to the metadata of a GGUF file. Knows no key's meaning."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from jackfield.hookspecs import ModelSourceError
from jackfield_models_loaders.gguf_header import GgufHeader, StringArray, Value


class Metadata:
    """Each getter returns None for an absent key and raises ModelSourceError for a value of the wrong type."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self.path = header.path

    def _get(self, key: str) -> Value | None:
        return self._header.metadata.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._header.metadata

    def fail(self, what: str) -> NoReturn:
        raise ModelSourceError(f"{self.path}: {what}")

    def _wrong(self, key: str, wanted: str) -> NoReturn:
        self.fail(f"metadata entry {key!r} is not {wanted}; convert the model again with a current llama.cpp")

    def text(self, key: str) -> str | None:
        value = self._get(key)
        if value is not None and not isinstance(value, str):
            self._wrong(key, "a string")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._get(key)
        if value is not None and not isinstance(value, bool):
            self._wrong(key, "a boolean")
        return value

    def integer(self, key: str) -> int | None:
        value = self._get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self._wrong(key, "an integer")
        return value

    def number(self, key: str) -> float | None:
        """A float, as the shortest decimal that gives the file's float32 (1e-05 rather than 9.999999747378752e-06)."""
        value = self._get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, "a number")
        if not np.isfinite(value):
            self._wrong(key, "a finite number")
        with np.errstate(over="ignore"):  # a double that does not fit becomes infinite here and is then not equal
            single = np.float32(value)
        return float(str(single)) if float(single) == value else float(value)

    def texts(self, key: str) -> list[str] | None:
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, StringArray):
            self._wrong(key, "an array of strings")
        return self._header.strings(value)

    def integers(self, key: str) -> list[int] | None:
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            self._wrong(key, "an array of integers")
        return [int(item) for item in value.tolist()]

    def numbers(self, key: str) -> list[float] | None:
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            self._wrong(key, "an array of numbers")
        return [float(item) for item in value.tolist()]

    def positive(self, key: str) -> int:
        """An integer that must be there and be positive."""
        value = self.integer(key)
        if value is None:
            self.fail(f"lacks the metadata entry {key!r}; convert the model again with a current llama.cpp")
        if value <= 0:
            self._wrong(key, f"a positive number ({value})")
        return value

    def uniform(self, key: str) -> int | None:
        """An integer, or an array that holds the same one for every layer."""
        value = self._get(key)
        if not isinstance(value, np.ndarray):
            return self.integer(key)
        if value.dtype.kind not in "iu" or value.size == 0:
            self._wrong(key, "an integer")
        if value.min() != value.max():
            self.fail(
                f"metadata entry {key!r} differs from layer to layer, which this architecture does not support here"
            )
        return int(value[0])
