"""What the executor asks of a device beside torch's operators: copies that do not wait, results that arrive later, memory, and
work that is recorded once and replayed.

Work is enqueued in the order of the calls, on one queue; nothing here waits for it but `Download.wait`. It knows no model,
batch or row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import DTypeLike, NDArray


@dataclass(frozen=True)
class Memory:
    """Bytes that could be allocated now, and bytes that there are."""

    free: int
    total: int


class Download(ABC):
    """Copies of tensors on their way to the host. Read from any thread.

    tensors   on the host, in the order in which they were asked for; their contents are there after `wait`
    """

    tensors: tuple[torch.Tensor, ...]

    @abstractmethod
    def ready(self) -> bool:
        """Whether `wait` would return at once."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> None:
        """Until the copies are there, at most `timeout` seconds (None: for ever). Raises TimeoutError."""


class Graph(ABC):
    """Work that was recorded.

    outputs   what the recorded function returned: tensors that each replay writes anew
    """

    outputs: Any

    @abstractmethod
    def replay(self) -> None:
        """Enqueue the recorded work, on the contents that its tensors have when it is its turn."""


class Device(ABC):
    """One device.

    torch_device   as torch names it
    host           tensors lie in the host's memory and an operation has ended when its call returns: then the host may read and
                   write them through NumPy
    records        `capture` can be called
    compiles       what is called here is compiled, or loaded, at its first call, which then takes long
    """

    torch_device: torch.device
    host: bool
    records: bool
    compiles: bool

    @abstractmethod
    def upload(self, array: NDArray[Any], dtype: DTypeLike) -> torch.Tensor:
        """A copy of `array` as `dtype`; the caller may change the array at once."""

    @abstractmethod
    def hand_over(self, array: NDArray[Any]) -> torch.Tensor:
        """`array` on the device, in its own memory on a host device: nobody may write to it any more, nor to what it is a view
        of."""

    @abstractmethod
    def fill(self, tensor: torch.Tensor, array: NDArray[Any]) -> None:
        """Write `array` into a tensor of its shape and dtype, behind the work that was enqueued before; the caller may change the
        array at once."""

    @abstractmethod
    def download(self, tensors: Sequence[torch.Tensor]) -> Download:
        """Start copies of what the tensors hold behind the work that was enqueued before. They must not be changed until the
        copies are there: they may be on a queue of their own, or the tensors themselves."""

    @abstractmethod
    def memory(self) -> Memory:
        """Of the device now; what torch keeps in its cache counts as taken."""

    @abstractmethod
    def peak(self) -> int:
        """Most bytes that tensors took at once since `reset_peak`; 0 where nobody counts."""

    @abstractmethod
    def reset_peak(self) -> None:
        """Count from what is taken now."""

    @abstractmethod
    def empty_cache(self) -> None:
        """Give back what torch keeps and no tensor uses."""

    @abstractmethod
    def graph_pool(self) -> Any:
        """Memory that several graphs may share, as they never run at once; for `capture`."""

    @abstractmethod
    def capture(self, run: Callable[[], Any], pool: Any) -> Graph:
        """Record what `run` enqueues. It is called once before that, so that what compiles or allocates at its first call has
        done so. Tensors that it reads and that it did not make itself must stay alive and where they are. Raises RuntimeError
        for what cannot be recorded: a wait, a copy from pageable memory, a value on the host."""
