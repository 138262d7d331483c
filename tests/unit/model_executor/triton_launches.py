"""Triton launches without a GPU: what would be compiled is noted, and nothing is run.

A launch is compiled anew where what the compiler is told differs: constants, options, and of each argument its type, for
pointers and integers whether they divide by 16, and for integers whether they are 1, unless the kernel says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from jackfield_attention_triton import backend, launch
from jackfield_ops_triton.kernels import activation, heads, norm, sampling

Key = tuple[Any, ...]
"""(kernel, constants and options, what each argument is to the compiler)"""

_KERNELS = (
    *((launch, name) for name in ("attend_kernel", "reduce_kernel", "split_length_kernel", "write_kernel")),
    *((norm, "_norm"), (heads, "_heads"), (activation, "_gated"), (sampling, "survey"), (sampling, "race")),
)


class Launcher:
    """Stands in for a kernel: `launcher[grid](...)`."""

    def __init__(self, kernel: Any, seen: dict[Key, int]) -> None:
        self._kernel, self._seen = kernel, seen

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self._launched

    def _launched(self, *given: Any, **constants: Any) -> None:
        given_to = zip(given, self._kernel.params, strict=False)  # behind them stand the constants
        arguments = tuple(_told(value, bool(parameter.do_not_specialize)) for value, parameter in given_to)
        key = (self._kernel.__name__, tuple(sorted(constants.items())), arguments)
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._kernel.__name__ == "survey":
            given[4].zero_()  # tokens, which index the embedding in the next step


def _told(value: Any, plain: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.data_ptr() % 16 == 0 or plain
    if isinstance(value, int) and not isinstance(value, bool):
        wide = "i32" if -(2**31) <= value < 2**31 else "i64"
        return wide if plain else (wide, value == 1, value % 16 == 0)
    return None if value is None else type(value).__name__


@contextmanager
def noted() -> Iterator[dict[Key, int]]:
    """Until the end all kernels of attention.triton and ops.triton are stand-ins. Gives what was launched, and how often."""
    seen: dict[Key, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module, name in _KERNELS:
            patch.setattr(module, name, Launcher(getattr(module, name), seen))
        patch.setattr(backend, "attend_kernel", None)  # by whose type it sees whether there is a GPU
        yield seen
