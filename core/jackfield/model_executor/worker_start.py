"""A worker's start: from its context to a loaded model with attention over a KV pool that fits the device.

The order counts. Weights come first, as they are the largest. Then what compiles or loads at a first call is called, so that
the memory of code and libraries, which no allocator of torch's counts, is taken before anything is measured; and the largest
step is measured on kernels that are there. What is free then is the pool's. Recording graphs comes later still, and finds
every kernel compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from jackfield.hookspecs import (
    AttentionLimits,
    KVLayout,
    KVTensors,
    ModelShape,
    Ops,
    WorkerContext,
    WorkerLimits,
    WorkerStack,
)
from jackfield.model_executor.attention_phases import AttentionPhases
from jackfield.model_executor.device import Device, open_device
from jackfield.model_executor.dtypes import dtype_name, torch_dtype
from jackfield.model_executor.kv_tensors import allocate_kv, page_bytes
from jackfield.model_executor.loading import load_model
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.out_of_memory import stage
from jackfield.model_executor.pool_sizes import PoolSizes, pool_sizes
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.room import gib, room_for_kv
from jackfield.model_executor.step_profile import profiled_step
from jackfield.model_executor.warm_up import warm_up
from jackfield.model_executor.window_table import WindowTable
from jackfield.model_executor.worker_stack import stack_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """What a started worker works with.

    table    the request-to-token table; window: the window pool's map, None: there is no such pool
    tables   KV group -> the one of the two in which its slots stand
    kv       KV group -> its tensors, nothing of which is in use
    """

    stack: WorkerStack
    device: Device
    limits: WorkerLimits
    ops: Ops
    runner: ModelRunner
    table: ReqToTokenTable
    window: WindowTable | None
    tables: Mapping[str, ReqToTokenTable | WindowTable]
    kv: Mapping[str, KVTensors]


def start(context: WorkerContext, on: Device | None = None) -> WorkerParts:
    """on: None: the device of `context.device`. Raises as `TorchWorker` says."""
    stack = stack_of(context)
    device = open_device(torch.device(context.device)) if on is None else on
    before = device.memory().free
    runners = _Runners(context, stack, device)
    max_rows = context.max_running + 1  # row 0 is the dummy row
    with stage(f"making the table of {max_rows} rows", "lower --max-running-requests or --context-length"):
        table = ReqToTokenTable(max_rows, context.max_context, device)

    if context.warm_up and device.compiles:
        warm_up(device, lambda: runners.over_dummy_page(table), runners.ops, table, context)
    step = profiled_step(device, lambda: runners.over_dummy_page(table), runners.ops, table, context)
    room = room_for_kv(
        device=str(device.torch_device),
        host=device.host,
        before=before,
        free=device.memory().free,
        step=step,
        fraction=context.mem_fraction,
    )
    sizes = pool_sizes(
        runners.shape.groups,
        runners.layouts,
        kv_dtype=runners.kv_dtype,
        page_size=context.page_size,
        wanted=context.max_total_tokens,
        room=room,
        window_pool=context.window_pool,
        max_running=context.max_running,
        max_tokens=context.max_tokens,
        max_context=context.max_context,
    )
    _log(sizes, context, runners)
    window = None
    if sizes.window is not None:
        window = WindowTable(table, total_slots=sizes.total_slots, page_size=context.page_size, tokens=sizes.window)
    tables = {
        group.name: table if window is None or group.kind != "window" else window for group in runners.shape.groups
    }
    runner = runners.over({name: one.slots for name, one in tables.items()})
    with stage(
        f"allocating a KV pool of {sizes.total_slots} tokens ({gib(sizes.bytes)})",
        "lower --mem-fraction-static or --max-total-tokens",
    ):
        pages = None if window is None else sizes.window_slots // context.page_size
        kv = runners.kv(sizes.total_slots // context.page_size, pages)
    runner.attention.bind(kv)
    return WorkerParts(
        stack=stack,
        device=device,
        limits=_limits(sizes, context, runners),
        ops=runners.ops,
        runner=runner,
        table=table,
        window=window,
        tables=tables,
        kv=kv,
    )


class _Runners:
    """The model with its operators, and runners of it: one for good, and others that are thrown away."""

    def __init__(self, context: WorkerContext, stack: WorkerStack, device: Device) -> None:
        self.shape: ModelShape = stack.shape
        self.layouts: dict[str, KVLayout] = {group.name: stack.layout for group in stack.shape.groups}
        self.dtype = torch_dtype(context.dtype)
        self.kv_dtype = self.dtype if context.kv_dtype is None else torch_dtype(context.kv_dtype)
        self._context, self._stack, self._device = context, stack, device.torch_device
        self.ops = stack.ops(
            {
                "device": str(self._device),
                "dtype": dtype_name(self.dtype),
                "layout": stack.layout.name,
                "deterministic": context.deterministic,
                "quantization": stack.quantization,
                "tp_size": context.shard.tp_size,
            }
        )
        advice = f"free memory on {self._device}, or take a smaller or more narrowly stored model"
        with stage("loading the weights", advice):
            self._model = load_model(
                stack,
                shard=context.shard,
                ops=self.ops,
                device=self._device,
                dtype=self.dtype,
                max_context=context.max_context,
                progress=context.progress,
            )

    def kv(self, pages: int, window_pages: int | None = None) -> dict[str, KVTensors]:
        """As `allocate_kv` gives it."""
        return allocate_kv(
            self.shape.groups,
            self.layouts,
            pages,
            self._context.page_size,
            self.kv_dtype,
            self._device,
            window_pages,
        )

    def over(self, tables: Mapping[str, torch.Tensor]) -> ModelRunner:
        """With attention of its own, which is to be bound. tables: KV group -> int32 [rows, context] slots."""
        context = self._context
        attention = AttentionPhases(
            self._stack,
            self.shape,
            tables=tables,
            page_size=context.page_size,
            limits=AttentionLimits(
                max_rows=context.max_running, max_tokens=context.max_tokens, max_context=context.max_context
            ),
            device=self._device,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            deterministic=context.deterministic,
        )
        return ModelRunner(self._model, self.ops, attention, context.pooling, own_pool=self.shape.pooling is not None)

    def over_dummy_page(self, table: ReqToTokenTable) -> ModelRunner:
        """Over KV that is the dummy page alone."""
        runner = self.over(dict.fromkeys((group.name for group in self.shape.groups), table.slots))
        runner.attention.bind(self.kv(0))
        return runner


def _limits(sizes: PoolSizes, context: WorkerContext, runners: _Runners) -> WorkerLimits:
    bytes_of_page = page_bytes(runners.shape.groups, runners.layouts, context.page_size, runners.kv_dtype)
    return WorkerLimits(
        max_rows=context.max_running + 1,
        max_context=context.max_context,
        total_slots=sizes.total_slots,
        page_size=context.page_size,
        vocab_size=runners.shape.vocab_size,
        max_tokens=context.max_tokens,
        kv_bytes_per_slot=bytes_of_page // context.page_size,
        window=sizes.window,
        window_slots=sizes.window_slots,
    )


def _log(sizes: PoolSizes, context: WorkerContext, runners: _Runners) -> None:
    logger.info(
        "KV pool: %d tokens of %s in %d pages of %d%s, %.1f MiB on %s",
        sizes.total_slots,
        dtype_name(runners.kv_dtype),
        sizes.total_slots // context.page_size,
        context.page_size,
        "" if sizes.window is None else f", {sizes.window_slots} for layers that look back {sizes.window} tokens",
        sizes.bytes / 2**20,
        context.device,
    )
