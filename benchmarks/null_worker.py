"""A worker without a model, for measuring what is not the worker. Its steps may take time, here or elsewhere, but no CPU."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Launched, ModelWorker, ModelWorkerBatch, PendingResult, WorkerLimits, WorkerResult


class NullLaunch(Launched):
    __slots__ = ("end", "sample")

    def __init__(self, sample: NDArray[np.bool_], end: float) -> None:
        self.sample = sample
        self.end = end


class NullResult:
    def __init__(self, result: WorkerResult, end: float) -> None:
        self._result = result
        self._end = end

    def ready(self) -> bool:
        return time.perf_counter() >= self._end

    def result(self, timeout: float | None = None) -> WorkerResult:
        left = self._end - time.perf_counter()
        if timeout is not None and left > timeout:
            raise TimeoutError(f"{left} s are left")
        if left > 0:
            time.sleep(left)
        return self._result


class NullWorker(ModelWorker):
    """Samples the same token for everybody. `device` seconds pass a step, without any CPU: elsewhere, as on a device, and
    steps run one behind the other; or in `launch`, as where the host computes. spent: CPU seconds that it took itself."""

    def __init__(self, limits: WorkerLimits, device: float = 0.0, *, blocking: bool = False) -> None:
        self.limits = limits
        self.spent = 0.0
        self._device = device
        self._blocking = blocking
        self._busy_until = 0.0

    def launch(self, batch: ModelWorkerBatch) -> Launched:
        if self._blocking:
            time.sleep(self._device)
            return NullLaunch(batch.sample, 0.0)
        began = time.thread_time()
        self._busy_until = max(self._busy_until, time.perf_counter()) + self._device
        launched = NullLaunch(batch.sample, self._busy_until)
        self.spent += time.thread_time() - began
        return launched

    def sample(self, launched: Launched, masks: Any = None) -> PendingResult:
        assert isinstance(launched, NullLaunch)
        began = time.thread_time()
        starts = np.zeros(len(launched.sample) + 1, dtype=np.int32)
        np.cumsum(launched.sample, out=starts[1:])
        result = NullResult(WorkerResult(tokens=np.full(starts[-1], 7, dtype=np.int32), starts=starts), launched.end)
        self.spent += time.thread_time() - began
        return result

    def close(self) -> None:
        return None
