"""The warm-up of kernels: short steps on dummy rows, by the way that those of requests go, from batch to tokens on the host.

What a GPU runs is compiled, or at least loaded, when it is first called: seconds in the midst of serving, for each kind of
step that nothing at start has touched. Recorded decode steps touch one kind, the measured step another. Nothing of this is
kept: rows, draws, attention and KV are made for it and thrown away; the run's own are not touched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import BatchFault, ModelWorkerBatch, Ops, RowOpen, TokenMasks, WorkerContext
from jackfield.model_executor.device import Device
from jackfield.model_executor.dummy_batch import dummy_batch
from jackfield.model_executor.forward_batch import make_forward_batch
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.out_of_memory import stage
from jackfield.model_executor.pooled import TokenTypes, pooled_rows
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.row_draws import RowDraws
from jackfield.model_executor.warm_up.steps import FEW, Asked, Step, asked_of_draws, warm_up_steps

logger = logging.getLogger(__name__)

_WHAT = "warming up kernels"


@torch.inference_mode()
def warm_up(
    device: Device,
    make_runner: Callable[[], ModelRunner],
    ops: Ops,
    table: ReqToTokenTable,
    context: WorkerContext,
) -> None:
    """make_runner: with attention over KV that is the dummy page alone, and `table` for all groups; table: all zeros. Raises
    InsufficientMemory."""
    began = time.monotonic()
    steps = warm_up_steps(
        max_running=context.max_running,
        max_tokens=context.max_tokens,
        max_context=context.max_context,
        whole=context.pooling is not None and context.pooling.whole,
    )
    new = min(FEW, context.max_context, context.max_tokens)
    asked = [] if context.pooling is not None else asked_of_draws(context.vocab_size, new)
    most, total = min(context.max_running, context.max_tokens // new), len(steps) + len(asked)
    tell = context.progress or _nobody
    with stage(
        "running kernels once ahead of requests",
        "lower --max-prefill-tokens, --max-running-requests or --context-length, or use --skip-server-warmup",
    ):
        runs = _Runs(device, make_runner(), ops, table, context)
        for done, step in enumerate(steps):
            tell(_WHAT, done, total)
            runs(step, Asked([{}] * len(step)))
        for done, one in enumerate(asked, len(steps)):
            tell(_WHAT, done, total)
            rows = one.rows[:most]
            runs(((0, new),) * len(rows), Asked(rows, one.masked))
    del runs
    device.empty_cache()  # what is free is measured next
    tell(_WHAT, total, total)
    logger.info(
        "kernels were run once ahead of requests, in %d steps and %d ways to draw: %.1f s",
        len(steps),
        len(asked),
        time.monotonic() - began,
    )


class _Runs:
    """Called with a step and what its rows ask for: runs it, and waits for what comes of it, since what goes wrong on the device
    is raised there."""

    def __init__(
        self, device: Device, runner: ModelRunner, ops: Ops, table: ReqToTokenTable, context: WorkerContext
    ) -> None:
        assert context.stack is not None
        self._device, self._runner, self._table, self._vocab = device, runner, table, context.vocab_size
        self._pools = context.pooling is not None
        self._tables = dict.fromkeys((group.name for group in context.stack.shape.groups), table)
        self._draws = RowDraws(context.max_running + 1, context.vocab_size, device, ops)

    def __call__(self, step: Step, asked: Asked) -> None:
        before, new = np.array(step, dtype=np.int32).T
        batch = dummy_batch(new, before, pools=self._pools)
        opened = [
            RowOpen(**{**_PLAIN, "row": row, "uid": row, "history": np.zeros(sum(lengths), dtype=np.int32), **fields})
            for row, lengths, fields in zip(batch.rows.tolist(), step, asked.rows, strict=True)
        ]
        self._draws.apply(opened, _NOBODY)
        try:
            self._device.download(self._given(batch, asked.masked)).wait()
        except BatchFault as fault:
            # A request that makes such a step gets this answer, and the others go on.
            logger.warning("a step of %s was refused ahead of requests: %s", _words(step), fault)
        finally:
            self._draws.apply((), batch.rows)

    def _given(self, batch: ModelWorkerBatch, masked: bool) -> list[torch.Tensor]:
        forward = make_forward_batch(batch, self._table, self._draws.newest, self._tables)
        if self._pools:
            return [self._runner.pool(forward, pooled_rows(batch, TokenTypes(), self._device))]
        rows, entries = batch.rows, self._draws.entries(batch)
        logits = self._runner.forward(forward, entries)
        positions, everybody = batch.computed.astype(np.int64) + batch.new_tokens, np.ones(len(rows), dtype=np.bool_)
        tokens = self._draws.draw(
            logits,
            self._draws.parameters(rows, positions),
            rows,
            positions,
            everybody,
            sampled=np.arange(len(rows)),
            masks=_all_allowed(rows, self._vocab) if masked else None,
            entries=entries,
        )
        self._draws.keep(tokens, rows, everybody)
        return [tokens, *(() if entries is None else entries.leave())]


_NOBODY: NDArray[np.int32] = np.empty(0, dtype=np.int32)
_PLAIN = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0}
"""Of a row that asks for nothing."""


def _all_allowed(rows: NDArray[np.int32], vocab_size: int) -> TokenMasks:
    return TokenMasks(rows=rows, bits=np.full((len(rows), -(-vocab_size // 32)), 0xFFFFFFFF, dtype=np.uint32))


def _words(step: Step) -> str:
    return ", ".join(f"{new} tokens behind {before}" for before, new in step)


def _nobody(what: str, done: int, total: int) -> None:
    """Nobody watches the start."""
