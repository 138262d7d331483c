"""What the largest step takes beside the weights: one such step is run on dummy rows before there is a KV pool, and the
device's own count is read.

Attention is made for it and thrown away, so what a
backend allocates when it is made counts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch, Ops, RowOpen, SamplingRows, WorkerContext
from jackfield.layers.sampler import SamplingTable
from jackfield.model_executor.device import Device
from jackfield.model_executor.dummy_batch import dummy_batch
from jackfield.model_executor.forward_batch import make_forward_batch
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.out_of_memory import stage
from jackfield.model_executor.pooled import TokenTypes, pooled_rows
from jackfield.model_executor.req_to_token import ReqToTokenTable

_TOP_P = 0.9  # a draw that sorts the vocabulary


def largest_step(*, max_running: int, max_tokens: int, max_context: int) -> NDArray[np.int32]:
    """New tokens of each row of a step than which none is larger: as many rows as may run, one of them (or more, where the
    context is short) with all the tokens that the others leave."""
    rows = min(max_running, max_tokens)
    lengths = np.ones(rows, dtype=np.int32)
    left = max_tokens - rows
    for row in range(rows):
        more = min(left, max_context - 1)
        lengths[row] += more
        left -= more
    return lengths


@torch.inference_mode()
def profiled_step(
    device: Device,
    make_runner: Callable[[], ModelRunner],
    ops: Ops,
    table: ReqToTokenTable,
    context: WorkerContext,
) -> int:
    """Bytes, 0 where the device does not count. make_runner: with attention over KV that is the dummy page alone, and `table`
    for all groups; table: that of the run, all zeros. Raises InsufficientMemory."""
    assert context.stack is not None
    lengths = largest_step(
        max_running=context.max_running, max_tokens=context.max_tokens, max_context=context.max_context
    )
    device.reset_peak()
    before = device.peak()
    if not before:
        return 0  # the weights are there, so nobody counts
    device.empty_cache()
    with stage(
        f"running the largest step once, {int(lengths.sum())} tokens of {len(lengths)} requests",
        "lower --max-prefill-tokens (with --chunked-prefill-size), --max-running-requests or --context-length",
    ):
        pools = context.pooling is not None
        batch = dummy_batch(lengths, pools=pools)
        groups = [group.name for group in context.stack.shape.groups]
        forward = make_forward_batch(batch, table, _newest(table), dict.fromkeys(groups, table))
        runner = make_runner()
        if pools:
            given = runner.pool(forward, pooled_rows(batch, TokenTypes(), device))
        else:
            given = ops.sample(runner.forward(forward), _sampling(batch, context.vocab_size, device))
        device.download([given]).wait()  # what went wrong on the device is raised here
    peak = device.peak()
    del runner, forward, given
    device.empty_cache()
    return max(0, peak - before)


def _newest(table: ReqToTokenTable) -> torch.Tensor:
    return torch.zeros(table.slots.shape[0], dtype=torch.int64, device=table.slots.device)


def _sampling(batch: ModelWorkerBatch, vocab_size: int, device: Device) -> SamplingRows:
    drawn = SamplingTable(int(batch.rows[-1]) + 1, vocab_size, device=str(device.torch_device))
    for row in batch.rows.tolist():
        history = np.zeros(1, dtype=np.int32)
        drawn.open(
            RowOpen(row=row, uid=row, history=history, temperature=1.0, top_k=0, top_p=_TOP_P, min_p=0.0, seed=row)
        )
    return drawn.rows(batch.rows, batch.new_tokens)
