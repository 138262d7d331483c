"""A simulated worker and batches made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    ModelWorker,
    ModelWorkerBatch,
    RowOpen,
    RowWrites,
    Shard,
    WorkerContext,
    WorkerResult,
)
from jackfield.observability.clock import ManualClock
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.simulated import jackfield_model_worker

VOCAB = 100
EOS = (2, 3)


def ints(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def make(
    *,
    page_size: int = 1,
    clock: ManualClock | None = None,
    encode: Callable[[str], list[int]] | None = None,
    eos_ids: tuple[int, ...] = EOS,
    max_total_tokens: int | None = 512,
    **options: Any,
) -> ModelWorker:
    return jackfield_model_worker(
        WorkerContext(
            kind="worker",
            name="simulated",
            instance="simulated",
            options=SimulatedOptions(**options),
            shard=Shard(),
            device="cpu",
            dtype="float32",
            seed=0,
            page_size=page_size,
            max_running=4,
            max_total_tokens=max_total_tokens,
            max_context=64,
            max_tokens=48,
            vocab_size=VOCAB,
            eos_ids=eos_ids,
            encode=encode,
            clock=clock,
        )
    )


def opening(row: int, uid: int, history: Sequence[int], **sampling: Any) -> RowOpen:
    values: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0}
    return RowOpen(row=row, uid=uid, history=ints(history), **(values | sampling))


def writing(*runs: tuple[int, int, Sequence[int]]) -> RowWrites:
    """Runs of (row, start, slots)."""
    return RowWrites(
        rows=ints([row for row, _, _ in runs]),
        starts=ints([start for _, start, _ in runs]),
        lengths=ints([len(slots) for _, _, slots in runs]),
        slots=ints([slot for _, _, slots in runs for slot in slots]),
    )


def batch(
    step: int,
    *parts: tuple[int, int, Sequence[int]],
    relay: Sequence[bool] | None = None,
    sample: Sequence[bool] | None = None,
    **more: Any,
) -> ModelWorkerBatch:
    """Parts of (row, computed, token ids)."""
    return ModelWorkerBatch(
        step=step,
        rows=ints([row for row, _, _ in parts]),
        computed=ints([computed for _, computed, _ in parts]),
        new_tokens=ints([len(ids) for _, _, ids in parts]),
        token_ids=ints([token for _, _, ids in parts for token in ids]),
        relay=np.array([False] * len(parts) if relay is None else relay, dtype=np.bool_),
        sample=np.array([True] * len(parts) if sample is None else sample, dtype=np.bool_),
        **more,
    )


def run(worker: ModelWorker, what: ModelWorkerBatch) -> list[list[int]]:
    return split(worker.sample(worker.launch(what)).result())


def split(result: WorkerResult) -> list[list[int]]:
    return [part.tolist() for part in np.split(result.tokens, result.starts[1:-1])]


def generate(
    worker: ModelWorker, prompt: Sequence[int], count: int, *, row: int = 1, uid: int = 1, **fields: Any
) -> list[int]:
    """One request alone, in row `row`, in slots of its own, closed again."""
    base = row * 64
    made = run(
        worker,
        batch(
            uid * 1000,
            (row, 0, prompt),
            opened=(opening(row, uid, prompt, **fields),),
            writes=writing((row, 0, range(base, base + len(prompt)))),
        ),
    )[0]
    for i in range(count - 1):
        at = len(prompt) + i
        made += run(worker, batch(uid * 1000 + i + 1, (row, at, [made[-1]]), writes=writing((row, at, [base + at]))))[0]
    run(worker, batch(uid * 1000 + count, closed=ints([row])))
    return made


PROMPT = [11, 12, 13, 14, 15, 16]


# tokens
