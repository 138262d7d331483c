"""`TorchWorker`: runs batches on a real model with torch. It owns all device state and decides nothing about requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import (
    BatchFault,
    KVTensors,
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    TokenMasks,
    WorkerContext,
)
from jackfield.model_executor.batch_check import check_batch
from jackfield.model_executor.device import Device
from jackfield.model_executor.forward_batch import make_forward_batch
from jackfield.model_executor.graphs import start_graphs
from jackfield.model_executor.kv_mover import TorchMover
from jackfield.model_executor.logprobs import StepEntries
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.pooled import TokenTypes, pooled_rows
from jackfield.model_executor.results import TorchLaunched, TorchResult
from jackfield.model_executor.row_draws import RowDraws
from jackfield.model_executor.row_states import RowStates
from jackfield.model_executor.worker_start import start


class TorchWorker(ModelWorker):
    """One rank. The number of threads on a CPU is torch's own (`OMP_NUM_THREADS`).

    kv    group name -> the KV cache's tensors; None once closed
    """

    def __init__(self, context: WorkerContext, on: Device | None = None) -> None:
        """Load the model, allocate the KV pool, make the attention backends. on: None: the device of `context.device`.

        Raises ModelSourceError or UnsupportedModel for a checkpoint, InsufficientMemory for what does not fit,
        ValueError for a context that this worker does not do.
        """
        parts = start(context, on)
        self.limits = parts.limits
        self.kv: Mapping[str, KVTensors] | None = parts.kv
        self._device = parts.device
        self._runner: ModelRunner | None = parts.runner
        self._table, self._window, self._tables = parts.table, parts.window, parts.tables
        self._pools = context.pooling is not None
        self._token_types = TokenTypes()
        self._rows = RowStates(self.limits.max_rows)
        self._draws = RowDraws(
            self.limits.max_rows,
            self.limits.vocab_size,
            parts.device,
            parts.ops,
            context.processors,
            eos_ids=context.eos_ids,
            encode=context.encode,
        )
        self._launched = 0
        self._sampled = 0
        # Last, as it takes rows and slots for a moment.
        self._graphs = start_graphs(
            context, parts.stack, parts.runner, parts.limits, parts.table, parts.tables, self._draws.newest
        )

    @torch.inference_mode()
    def launch(self, batch: ModelWorkerBatch) -> Launched:
        """Raises InvalidBatch, with nothing applied, where the batch breaks the contract; torch's errors pass. A batch that the
        attention backend cannot plan comes to nothing, which its result tells."""
        runner = self._runner
        if runner is None:
            raise RuntimeError("the worker is closed")
        check_batch(batch, self.limits, pools=self._pools)
        self._rows.check(batch)
        self._draws.check(batch.opened)

        self._rows.apply(batch)
        self._draws.apply(batch.opened, batch.closed)
        self._table.clear(batch.closed)
        self._token_types.apply(batch)
        self._table.apply(batch.writes)
        if self._window is not None:
            self._window.apply(batch.window)

        logits = sampling = entries = pooled = to_pool = None
        refused = ""
        sampled = batch.sample.nonzero()[0]
        positions = batch.computed[sampled].astype(np.int64) + batch.new_tokens[sampled]
        if batch.rows.size:
            entries = self._draws.entries(batch)
            try:
                if self._pools:
                    forward = make_forward_batch(batch, self._table, self._draws.newest, self._tables)
                    to_pool = pooled_rows(batch, self._token_types, self._device)
                    pooled = runner.pool(forward, to_pool)
                else:
                    logits = self._logits_of(runner, batch, sampled, entries)
            except BatchFault as fault:
                refused = str(fault) or type(fault).__name__
                entries = None
            if sampled.size and logits is not None:
                # Taken now: a later launch may close the row and open it for another request before `sample`.
                sampling = self._draws.parameters(batch.rows[sampled], positions)
        self._launched += 1
        return TorchLaunched(
            step=batch.step,
            order=self._launched,
            rows=batch.rows,
            owners=self._rows.owners(batch.rows),
            sampled=sampled,
            logits=logits,
            sampling=sampling,
            entries=entries,
            positions=positions,
            refused=refused,
            pooled=pooled,
            pooled_rows=None if to_pool is None else to_pool.rows,
        )

    def _logits_of(
        self, runner: ModelRunner, batch: ModelWorkerBatch, sampled: NDArray[np.int64], entries: StepEntries | None
    ) -> torch.Tensor:
        """Float32 [m, vocab] of the sampled rows, by a replay where there is a graph for the step."""
        logits = self._graphs.run(runner, batch, entries)
        if logits is None:
            return runner.forward(make_forward_batch(batch, self._table, self._draws.newest, self._tables), entries)
        if sampled.size == batch.rows.size:
            return logits
        return logits.index_select(0, self._device.upload(sampled, np.int64))

    @torch.inference_mode()
    def sample(self, launched: Launched, masks: TokenMasks | None = None) -> TorchResult:
        """Raises RuntimeError where a step is sampled twice or out of order, ValueError for masks that are not of its rows."""
        if self._runner is None:
            raise RuntimeError("the worker is closed")
        step = cast(TorchLaunched, launched)
        if step.order != self._sampled + 1:
            raise RuntimeError(f"step {step.step} is sampled out of order, or twice")
        self._sampled = step.order
        rows, owners = step.rows[step.sampled], step.owners[step.sampled]
        if step.refused:
            self._draws.keep_nothing(rows[self._rows.sampled(rows, owners)])
            return TorchResult(self._device, step.rows.size, step.sampled, None, refused=step.refused)
        if step.logits is None or step.sampling is None:
            return TorchResult(
                self._device,
                step.rows.size,
                step.sampled,
                None,
                step.entries,
                pooled=step.pooled,
                pooled_rows=step.pooled_rows,
            )
        tokens = self._draws.draw(
            step.logits,
            step.sampling,
            rows,
            step.positions,
            self._rows.live(rows, owners),
            sampled=step.sampled,
            masks=masks,
            entries=step.entries,
        )
        step.logits = step.sampling = None
        still = self._rows.sampled(rows, owners)
        self._draws.keep(tokens, rows, still)
        failed = self._draws.failed(step.sampled[still], rows[still])
        late = self._draws.late_checks()
        return TorchResult(self._device, step.rows.size, step.sampled, tokens, step.entries, failed, late=late)

    def report(self) -> dict[str, float | int | str | None]:
        return self._graphs.report()

    def mover(self) -> TorchMover:
        if self.kv is None:
            raise RuntimeError("the worker is closed")
        return TorchMover(self.kv)

    def close(self) -> None:
        """Drop the model, the KV pool and the tables. A result that is still pending stays readable."""
        if self._runner is None:
            return
        self._runner = self.kv = None
        self._graphs.forget()
        del self._table, self._tables, self._window, self._draws
        self._device.empty_cache()
