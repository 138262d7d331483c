"""Prefill: the time of one chunk of a long prompt, without and behind cached tokens, against what arithmetic would allow."""

from __future__ import annotations

import statistics

import numpy as np
from benchmarks.gpu.clock import settled
from benchmarks.gpu.jobs import Row, guarded
from benchmarks.gpu.shapes import Counts
from benchmarks.gpu.steps import Rows

from jackfield.model_executor.torch_worker import TorchWorker

CHUNK = 8192
"""New tokens of the measured step."""


def measure(worker: TorchWorker, row: Row, counts: Counts, *, new: int, cached: int, device: str, tiny: bool) -> Row:
    """A row with seconds, tokens_per_second and the operations of the step. The cached tokens are what lies in the pool."""

    def work() -> Row:
        drive, times = Rows(worker), []
        random = np.random.default_rng(0)
        for _ in range(2 if tiny else 4):
            tokens = random.integers(0, worker.limits.vocab_size, cached + new).astype(np.int32)
            number = drive.open(tokens, cached + new)
            began = settled(device)
            drive.step([number], np.array([cached]), [tokens[cached:]]).result()
            times.append(settled(device) - began)
            drive.close([number])
            drive.flush()
        seconds = statistics.median(times[1:])
        return {
            "cached": cached,
            "seconds": seconds,
            "tokens_per_second": new / seconds,
            "flops": counts.prefill_flops(new, cached),
        }

    return guarded(row | {"prefill": new}, work)
