"""Torch's operations on a CPU as a GPU's queue would see them: which of them would make the host wait, and which can be recorded
and replayed.

A recording holds operations and the tensors that they were called with, as a CUDA graph holds kernels and addresses: a replay
calls no Python of whoever recorded it, reads what the tensors hold by then, and writes results where the recorded ones are.
Numbers that the host knew are frozen in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITING = frozenset(
    {
        *("_local_scalar_dense", "item", "is_nonzero", "nonzero", "nonzero_numpy", "argwhere", "masked_select"),
        *("_unique2", "unique_dim", "unique_consecutive", "equal", "allclose"),
    }
)
"""Operations whose result's value or size the host must know; `int(t)` and `bool(t)` come to the first, or in
inference mode to the next two."""

_READING = ("numpy", "tolist", "cpu", "__array__")
"""What reads a tensor on the host without an operation that a mode could see."""

_EMPTY = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"})


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells `waits` the name of each operation that would wait. One that takes a mask of bools counts: how many are set decides
    the size of what comes of it."""

    def __init__(self, waits: Callable[[str], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._waits = waits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _name(func)
        masked = name in ("index", "index_put", "index_put_") and any(
            one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1]
        )
        if name in WAITING or masked:
            self._waits(f"aten.{name}")
        return func(*args, **(kwargs or {}))


@contextmanager
def watched(waits: Callable[[str], None]) -> Iterator[None]:
    """Until the end, `waits` is told what would wait for a device: operations by name, and reads of tensors through Python."""
    with pytest.MonkeyPatch.context() as patch, Watch(waits):
        patch.setattr(torch.Tensor, "__setitem__", _setting(torch.Tensor.__setitem__, waits))
        for name in _READING:
            patch.setattr(torch.Tensor, name, _telling(getattr(torch.Tensor, name), f"Tensor.{name}", waits))
        yield


def _telling(method: Callable[..., Any], name: str, waits: Callable[[str], None]) -> Callable[..., Any]:
    def told(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        waits(name)
        return method(self, *args, **kwargs)

    return told


def _setting(method: Callable[..., None], waits: Callable[[str], None]) -> Callable[..., None]:
    """A number that is set at indices, or as a single element, becomes a tensor on the host first: its copy is waited for. Set to
    a slice it is filled in."""

    def told(self: torch.Tensor, index: Any, value: Any) -> None:
        at = index if isinstance(index, tuple) else (index,)
        element = len(at) == self.dim() and all(isinstance(one, int | np.integer) for one in at)
        listed = any(isinstance(one, torch.Tensor | np.ndarray | list) for one in at)
        if (element or listed) and not isinstance(value, torch.Tensor):
            waits("Tensor.__setitem__ of a number")
        method(self, index, value)

    return told


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs and records what is called while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._work: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if _name(func) not in _EMPTY and not _only_views(made, args, kwargs):
            self._work.append((func, args, kwargs, made))
        return made

    def __len__(self) -> int:
        return len(self._work)

    def replay(self) -> None:
        for func, args, kwargs, recorded in self._work:
            made = func(*args, **kwargs)
            for old, new in zip(tree_leaves(recorded), tree_leaves(made), strict=True):
                if isinstance(old, torch.Tensor) and old is not new and _storage(old) != _storage(new):
                    old.copy_(new)


def _only_views(made: Any, args: Any, kwargs: Any) -> bool:
    """Whether nothing was computed: each result lies in the memory of an argument, and nothing was written."""
    results = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
    given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    if not results or any(
        one is other for one in results for other in given
    ):  # an operation in place gives its argument
        return False
    there = {_storage(one) for one in given}
    return all(_storage(one) in there for one in results)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _name(func: Any) -> str:
    found: str = func.overloadpacket.__name__
    return found
