"""Decode: the time of a step of many rows, as the event loop sees it, against what the device's limits would allow."""

from __future__ import annotations

import statistics

import numpy as np
from benchmarks.gpu.clock import settled
from benchmarks.gpu.jobs import Row, guarded
from benchmarks.gpu.shapes import Counts
from benchmarks.gpu.steps import DEPTH, Rows

from jackfield.model_executor.torch_worker import TorchWorker

STEPS, WARM = 48, 8
"""Steps of a round, and those before the first that are not timed."""


def rounds(tiny: bool) -> int:
    return 1 if tiny else 3


def measure(
    worker: TorchWorker,
    row: Row,
    counts: Counts,
    *,
    rows: int,
    context: int,
    steps: int,
    itemsize: int,
    device: str,
    tiny: bool,
) -> Row:
    """A row with seconds, tokens_per_second, and the bytes and operations of a step in the middle of the run."""

    def work() -> Row:
        drive, warm = Rows(worker), DEPTH if tiny else WARM
        room = context + rounds(tiny) * steps + warm + 1
        history = np.random.default_rng(0).integers(0, worker.limits.vocab_size, context + 1).astype(np.int32)
        numbers = [drive.open(history, room, temperature=0.0) for _ in range(rows)]
        # The first token is told; what lies before it is what `fill_kv` has left there.
        drive.step(numbers, np.full(rows, context), [history[-1:]] * rows).result()
        at, times = context + 1, []
        for count in (warm, *[steps] * rounds(tiny)):
            began = settled(device)
            for result in drive.decode(numbers, at, count):
                if len(result.tokens) != rows or result.errors:
                    raise RuntimeError(f"{rows} rows gave {len(result.tokens)} tokens; errors: {dict(result.errors)}")
            times.append((settled(device) - began) / count)
            at += count
        drive.close(numbers)
        drive.flush()
        seconds = statistics.median(times[1:])
        middle = (context + warm + at) // 2
        return {
            "context": middle,
            "seconds": seconds,
            "spread": (max(times[1:]) - min(times[1:])) / seconds,
            "tokens_per_second": rows / seconds,
            "bytes": counts.decode_bytes(rows, middle, itemsize),
            "flops": counts.decode_flops(rows, middle),
        }

    return guarded(row | {"decode": rows}, work)
