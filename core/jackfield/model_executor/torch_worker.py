"""`TorchWorker`: runs batches on a real model with torch. It owns all device state and decides nothing about requests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import (
    AttentionLimits,
    BatchFault,
    KVTensors,
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    TokenMasks,
    WorkerContext,
    WorkerLimits,
)
from jackfield.layers.sampler import SamplingTable
from jackfield.layers.token_mask import apply_masks
from jackfield.model_executor.attention_phases import AttentionPhases
from jackfield.model_executor.batch_check import check_batch
from jackfield.model_executor.device import Device, open_device
from jackfield.model_executor.dtypes import dtype_name, torch_dtype
from jackfield.model_executor.forward_batch import make_forward_batch
from jackfield.model_executor.graphs import start_graphs
from jackfield.model_executor.kv_mover import TorchMover
from jackfield.model_executor.kv_tensors import allocate_kv, page_bytes
from jackfield.model_executor.loading import load_model
from jackfield.model_executor.logits_pipeline import LogitsPipeline
from jackfield.model_executor.logprobs import LogprobTable, StepEntries
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.out_of_memory import stage
from jackfield.model_executor.pool_sizes import pool_sizes
from jackfield.model_executor.pooled import TokenTypes, pooled_rows
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.results import TorchLaunched, TorchResult
from jackfield.model_executor.room import gib, room_for_kv
from jackfield.model_executor.row_states import RowStates
from jackfield.model_executor.step_profile import profiled_step
from jackfield.model_executor.window_table import WindowTable
from jackfield.model_executor.worker_stack import stack_of

logger = logging.getLogger(__name__)


class TorchWorker(ModelWorker):
    """One rank. The number of threads on a CPU is torch's own (`OMP_NUM_THREADS`).

    kv    group name -> the KV cache's tensors; None once closed
    """

    def __init__(self, context: WorkerContext, on: Device | None = None) -> None:
        """Load the model, allocate the KV pool, make the attention backends. on: None: the device of `context.device`.

        Raises ModelSourceError or UnsupportedModel for a checkpoint, InsufficientMemory for what does not fit,
        ValueError for a context that this worker does not do.
        """
        stack = stack_of(context)
        there = open_device(torch.device(context.device)) if on is None else on
        before = there.memory().free
        device, dtype = there.torch_device, torch_dtype(context.dtype)
        kv_dtype = dtype if context.kv_dtype is None else torch_dtype(context.kv_dtype)
        shape = stack.shape
        ops = stack.ops(
            {
                "device": str(device),
                "dtype": dtype_name(dtype),
                "layout": stack.layout.name,
                "deterministic": context.deterministic,
                "quantization": stack.quantization,
                "tp_size": context.shard.tp_size,
            }
        )
        with stage("loading the weights", f"free memory on {device}, or take a smaller or more narrowly stored model"):
            model = load_model(
                stack,
                shard=context.shard,
                ops=ops,
                device=device,
                dtype=dtype,
                max_context=context.max_context,
                progress=context.progress,
            )

        max_rows = context.max_running + 1  # row 0 is the dummy row
        with stage(f"making the table of {max_rows} rows", "lower --max-running-requests or --context-length"):
            self._table = ReqToTokenTable(max_rows, context.max_context, there)
        layouts = {group.name: stack.layout for group in shape.groups}

        def attention_over(tables: Mapping[str, torch.Tensor]) -> AttentionPhases:
            return AttentionPhases(
                stack,
                shape,
                tables=tables,
                page_size=context.page_size,
                limits=AttentionLimits(
                    max_rows=context.max_running, max_tokens=context.max_tokens, max_context=context.max_context
                ),
                device=device,
                dtype=dtype,
                kv_dtype=kv_dtype,
                deterministic=context.deterministic,
            )

        def runner_over(attention: AttentionPhases) -> ModelRunner:
            return ModelRunner(model, ops, attention, context.pooling, own_pool=shape.pooling is not None)

        def dummy_runner() -> ModelRunner:
            attention = attention_over(dict.fromkeys((group.name for group in shape.groups), self._table.slots))
            attention.bind(allocate_kv(shape.groups, layouts, 0, context.page_size, kv_dtype, device))
            return runner_over(attention)

        step = profiled_step(there, dummy_runner, ops, self._table, context)
        room = room_for_kv(
            device=str(device),
            host=there.host,
            before=before,
            free=there.memory().free,
            step=step,
            fraction=context.mem_fraction,
        )
        sizes = pool_sizes(
            shape.groups,
            layouts,
            kv_dtype=kv_dtype,
            page_size=context.page_size,
            wanted=context.max_total_tokens,
            room=room,
            window_pool=context.window_pool,
            max_running=context.max_running,
            max_tokens=context.max_tokens,
            max_context=context.max_context,
        )
        self.limits = WorkerLimits(
            max_rows=max_rows,
            max_context=context.max_context,
            total_slots=sizes.total_slots,
            page_size=context.page_size,
            vocab_size=shape.vocab_size,
            max_tokens=context.max_tokens,
            kv_bytes_per_slot=page_bytes(shape.groups, layouts, context.page_size, kv_dtype) // context.page_size,
            window=sizes.window,
            window_slots=sizes.window_slots,
        )
        num_pages = sizes.total_slots // context.page_size
        logger.info(
            "KV pool: %d tokens of %s in %d pages of %d%s, %.1f MiB on %s",
            sizes.total_slots,
            dtype_name(kv_dtype),
            num_pages,
            context.page_size,
            "" if sizes.window is None else f", {sizes.window_slots} for layers that look back {sizes.window} tokens",
            sizes.bytes / 2**20,
            device,
        )
        self._window: WindowTable | None = None
        if sizes.window is not None:
            self._window = WindowTable(
                self._table, total_slots=sizes.total_slots, page_size=context.page_size, tokens=sizes.window
            )
        self._tables = {
            group.name: self._table if self._window is None or group.kind != "window" else self._window
            for group in shape.groups
        }
        attention = attention_over({name: table.slots for name, table in self._tables.items()})
        window_pages = None if sizes.window is None else sizes.window_slots // context.page_size
        with stage(
            f"allocating a KV pool of {sizes.total_slots} tokens ({gib(sizes.bytes)})",
            "lower --mem-fraction-static or --max-total-tokens",
        ):
            kv = allocate_kv(shape.groups, layouts, num_pages, context.page_size, kv_dtype, device, window_pages)
        attention.bind(kv)
        self.kv: Mapping[str, KVTensors] | None = kv
        self._pools = context.pooling is not None
        self._token_types = TokenTypes()
        runner = runner_over(attention)
        self._runner: ModelRunner | None = runner
        self._ops = ops
        self._device = there
        self._rows = RowStates(max_rows)
        self._newest = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self._sampling = SamplingTable(max_rows, shape.vocab_size, device=str(device))
        self._logprobs = LogprobTable(max_rows, shape.vocab_size)
        self._logits = LogitsPipeline(
            max_rows,
            shape.vocab_size,
            str(device),
            context.processors,
            eos_ids=context.eos_ids,
            encode=context.encode,
        )
        self._launched = 0
        self._sampled = 0
        # Last, as it takes rows and slots for a moment.
        self._graphs = start_graphs(context, stack, runner, self.limits, self._table, self._tables, self._newest, dtype)

    @torch.inference_mode()
    def launch(self, batch: ModelWorkerBatch) -> Launched:
        """Raises InvalidBatch, with nothing applied, where the batch breaks the contract; torch's errors pass. A batch that the
        attention backend cannot plan comes to nothing, which its result tells."""
        runner = self._runner
        if runner is None:
            raise RuntimeError("the worker is closed")
        check_batch(batch, self.limits, pools=self._pools)
        self._rows.check(batch)
        self._logits.check(batch.opened)

        self._rows.apply(batch)
        for row in batch.closed.tolist():
            self._sampling.close(row)
            self._logprobs.close(row)
        self._table.clear(batch.closed)
        for opened in batch.opened:
            self._sampling.open(opened)
            self._logprobs.open(opened)
        self._logits.close(batch.closed)
        self._logits.open(batch.opened)
        self._token_types.apply(batch)
        self._table.apply(batch.writes)
        if self._window is not None:
            self._window.apply(batch.window)

        logits = sampling = entries = pooled = to_pool = None
        refused = ""
        sampled = batch.sample.nonzero()[0]
        positions = batch.computed[sampled].astype(np.int64) + batch.new_tokens[sampled]
        if batch.rows.size:
            entries = self._logprobs.step(batch)
            try:
                if self._pools:
                    forward = make_forward_batch(batch, self._table, self._newest, self._tables)
                    to_pool = pooled_rows(batch, self._token_types, self._device)
                    pooled = runner.pool(forward, to_pool)
                else:
                    logits = self._logits_of(runner, batch, sampled, entries)
            except BatchFault as fault:
                refused = str(fault) or type(fault).__name__
                entries = None
            if sampled.size and logits is not None:
                # Taken now: a later launch may close the row and open it for another request before `sample`.
                sampling = self._sampling.rows(batch.rows[sampled], positions)
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
            return runner.forward(make_forward_batch(batch, self._table, self._newest, self._tables), entries)
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
        if step.refused:
            rows, owners = step.rows[step.sampled], step.owners[step.sampled]
            self._newest.index_fill_(0, self._device.upload(rows[self._rows.sampled(rows, owners)], "int64"), 0)
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
        if step.entries is not None:
            step.entries.keep_raw(step.logits)
        rows, owners = step.rows[step.sampled], step.owners[step.sampled]
        self._logits.apply(step.logits, rows, step.positions, self._rows.live(rows, owners))
        if masks is not None:
            apply_masks(step.logits, rows, masks)
        tokens = self._ops.sample(step.logits, step.sampling)  # -1 for a row whose logits are not finite
        if step.entries is not None:
            step.entries.add_sampled(tokens, step.sampled)
        step.logits = step.sampling = None
        still = self._rows.sampled(rows, owners)
        self._relay(tokens, rows, still)
        failed = self._failed(step, still)
        return TorchResult(self._device, step.rows.size, step.sampled, tokens, step.entries, failed)

    def _relay(self, tokens: torch.Tensor, rows: NDArray[np.int32], still: NDArray[np.bool_]) -> None:
        """Keep what was drawn for the rows that are `still` those of their requests. A row that failed relays token 0, if a step
        after it is in flight already: an id like any other, never kept."""
        if self._device.host and not self._logits.asked:
            self._newest.numpy()[rows[still]] = np.maximum(tokens.numpy()[still], 0)
            return
        newest = tokens.clamp(min=0)[self._device.upload(still.nonzero()[0], "int64")]
        self._newest[self._device.upload(rows[still], "int64")] = newest
        self._logits.tokens(rows[still], newest)

    def _failed(self, step: TorchLaunched, live: NDArray[np.bool_]) -> dict[int, str]:
        """Batch index -> why, for the sampled rows that a logits processor failed."""
        why = self._logits.failed
        if not why:
            return {}
        mine = step.sampled[live].tolist()
        return {i: why[row] for i, row in zip(mine, step.rows[mine].tolist(), strict=True) if row in why}

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
        del self._ops, self._table, self._tables, self._window, self._newest, self._sampling, self._logits
        self._device.empty_cache()
