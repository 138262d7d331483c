"""A CUDA device through torch: pinned copies, a stream for results, events, the caching allocator's numbers, CUDA graphs.

Everything is enqueued on the stream that is torch's current one when a call is made; results leave on a stream of their own,
so that a copy to the host runs beside the next step's kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from jackfield.layers.to_device import to_device
from jackfield.model_executor.device.device import Device, Download, Graph, Memory

_POLL_SECONDS = 2e-4


class CudaDownload(Download):
    """Pinned memory, and the event behind its last copy."""

    __slots__ = ("_ended", "tensors")

    def __init__(self, tensors: tuple[torch.Tensor, ...], ended: torch.cuda.Event) -> None:
        self.tensors = tensors
        self._ended = ended

    def ready(self) -> bool:
        return bool(self._ended.query())  # type: ignore[no-untyped-call]

    def wait(self, timeout: float | None = None) -> None:
        if timeout is None:
            self._ended.synchronize()
            return
        deadline = time.monotonic() + timeout
        while not self.ready():  # an event cannot be waited for with a limit
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the step did not end within {timeout} s")
            time.sleep(_POLL_SECONDS)


class CudaGraph(Graph):
    __slots__ = ("_graph", "outputs")

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: Any) -> None:
        self._graph = graph
        self.outputs = outputs

    def replay(self) -> None:
        self._graph.replay()


class CudaDevice(Device):
    """One GPU of this process."""

    host = False
    records = True
    compiles = True

    def __init__(self, device: torch.device) -> None:
        self.torch_device = device
        self._results = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # One for all graphs, as those that share a pool must have.
        self._recording = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def upload(self, array: NDArray[Any], dtype: DTypeLike) -> torch.Tensor:
        return to_device(np.array(array, dtype=dtype), self.torch_device)

    def hand_over(self, array: NDArray[Any]) -> torch.Tensor:
        return to_device(array, self.torch_device)

    def fill(self, tensor: torch.Tensor, array: NDArray[Any]) -> None:
        # The caching host allocator hands the pinned block out again only when the copy has ended.
        tensor.copy_(torch.from_numpy(array).pin_memory(), non_blocking=True)

    def download(self, tensors: Sequence[torch.Tensor]) -> Download:
        self._results.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(self._results):
            host = tuple(self._copied(tensor) for tensor in tensors)
            ended = self._results.record_event()
        return CudaDownload(host, ended)

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        there.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._results)  # its memory is not given to others before the copy has ended
        return there

    def memory(self) -> Memory:
        free, total = torch.cuda.mem_get_info(self.torch_device)
        return Memory(free=free, total=total)

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self.torch_device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.torch_device)

    def empty_cache(self) -> None:
        with torch.cuda.device(self.torch_device):
            torch.cuda.empty_cache()

    def graph_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def capture(self, run: Callable[[], Any], pool: Any) -> Graph:
        with torch.cuda.device(self.torch_device):
            self._recording.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._recording):
                run()
            torch.cuda.current_stream().wait_stream(self._recording)
            graph = torch.cuda.CUDAGraph()
            # Other threads may go on allocating: only this one's calls are held to the rules of a recording.
            stream = self._recording
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                outputs = run()
        return CudaGraph(graph, outputs)
