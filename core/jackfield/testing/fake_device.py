"""A device over CPU tensors that behaves as a GPU does towards the host, and keeps the order of what happens.

It copies what is uploaded, gives results only to those who waited, refuses in a recording what a CUDA graph cannot hold, and
replays without calling Python again. What it cannot show: that kernels run beside the host, and what a real allocator does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from jackfield.model_executor.device import Device, Download, Graph, Memory
from jackfield.testing.recorded_work import Recording, watched


class FakeDevice(Device):
    """log   what happened, in order: "upload", "fill", "download 3", "wait 3", "capture", "replay", "synchronise Tensor.numpy",
    "mark ..."; the number of a download counts them
    finished   whether a download is ready without being waited for
    """

    host = False
    records = True
    compiles = True

    def __init__(self, *, memory: Memory | None = None) -> None:
        self.torch_device = torch.device("cpu")
        self.log: list[str] = []
        self.finished = False
        self._memory = memory or Memory(free=2**30, total=2**31)
        self._downloads = 0
        self._capturing = False

    def mark(self, text: str) -> None:
        """A line of the test's own."""
        self.log.append(f"mark {text}")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """What would wait for a GPU inside is in the log, as "synchronise ..."."""
        with watched(self._synchronised):
            yield

    def upload(self, array: NDArray[Any], dtype: DTypeLike) -> torch.Tensor:
        self._did("upload")
        return torch.from_numpy(np.array(array, dtype=dtype))

    def hand_over(self, array: NDArray[Any]) -> torch.Tensor:
        self._did("upload")
        return torch.from_numpy(np.array(array))

    def fill(self, tensor: torch.Tensor, array: NDArray[Any]) -> None:
        self._did("fill")
        if tensor.shape != array.shape or tensor.dtype != torch.from_numpy(array[:0]).dtype:
            raise ValueError(f"{array.dtype} {array.shape} do not fill {tensor.dtype} {tuple(tensor.shape)}")
        tensor.copy_(torch.from_numpy(array.copy()))

    def download(self, tensors: Sequence[torch.Tensor]) -> Download:
        self._downloads += 1
        self._did(f"download {self._downloads}")
        return FakeDownload(self, self._downloads, tensors)

    def memory(self) -> Memory:
        return self._memory

    def peak(self) -> int:
        return 0

    def reset_peak(self) -> None:
        pass

    def empty_cache(self) -> None:
        self._did("empty cache")

    def graph_pool(self) -> Any:
        return object()

    def capture(self, run: Callable[[], Any], pool: Any) -> Graph:
        run()
        self._did("capture")
        recording = Recording()
        self._capturing = True
        try:
            with self.watch(), recording:
                outputs = run()
        finally:
            self._capturing = False
        if not len(recording):
            raise RuntimeError("nothing was enqueued while a graph was recorded")
        return FakeGraph(self, recording, outputs)

    def _did(self, what: str) -> None:
        if self._capturing:
            raise RuntimeError(f"{what} while a graph is recorded")
        self.log.append(what)

    def _synchronised(self, name: str) -> None:
        self._did(f"synchronise {name}")


class FakeDownload(Download):
    """Copies whose contents are wrong until somebody has waited for them."""

    def __init__(self, device: FakeDevice, number: int, tensors: Sequence[torch.Tensor]) -> None:
        self._device = device
        self._number = number
        self._contents = [tensor.clone() for tensor in tensors]
        self.tensors = tuple(torch.full_like(tensor, -77) for tensor in tensors)
        self._there = False

    def ready(self) -> bool:
        return self._there or self._device.finished

    def wait(self, timeout: float | None = None) -> None:
        if timeout is not None and not self.ready():
            raise TimeoutError(f"the step did not end within {timeout} s")
        self._device._did(f"wait {self._number}")
        self._there = True
        with torch.inference_mode():
            for mine, contents in zip(self.tensors, self._contents, strict=True):
                mine.copy_(contents)


class FakeGraph(Graph):
    """A recording; its outputs are overwritten by each replay, as those of a CUDA graph are."""

    def __init__(self, device: FakeDevice, recording: Recording, outputs: Any) -> None:
        self._device = device
        self._recording = recording
        self.outputs = outputs

    def replay(self) -> None:
        self._device._did("replay")
        self._recording.replay()
