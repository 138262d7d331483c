"""Graphs at a worker's start: whether there are any, recording, and the proof that they give what steps without them give."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import torch

from jackfield.hookspecs import WorkerContext, WorkerLimits, WorkerStack
from jackfield.model_executor.dtypes import torch_dtype
from jackfield.model_executor.graphs.decode_graphs import DecodeGraphs
from jackfield.model_executor.graphs.reasons import why_none
from jackfield.model_executor.graphs.sameness import check_sameness
from jackfield.model_executor.graphs.sizes import padded_sizes
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.window_table import WindowTable

logger = logging.getLogger(__name__)


def start_graphs(
    context: WorkerContext,
    stack: WorkerStack,
    runner: ModelRunner,
    limits: WorkerLimits,
    table: ReqToTokenTable,
    tables: Mapping[str, ReqToTokenTable | WindowTable],
    newest: torch.Tensor,
) -> DecodeGraphs:
    """Behind everything else of the start: the KV is there, and nobody uses it. Raises GraphFailed, GraphMismatch,
    InsufficientMemory."""
    sizes = padded_sizes(context.graph_rows, context.graph_max_rows, context.max_running)
    off = why_none(context, stack, records=table.device.records, sizes=sizes)
    graphs = DecodeGraphs(off, sizes)
    if off:
        # Nobody expects it of a device that cannot.
        logger.log(logging.INFO if table.device.records else logging.DEBUG, "decode steps are not recorded: %s", off)
        return graphs
    began, before = time.monotonic(), table.device.memory().free
    graphs.record(runner, table, tables, newest, max_kv=context.max_context)
    error = check_sameness(graphs, runner, limits, table, tables, newest, torch_dtype(context.dtype))
    logger.info(
        "decode steps of %s rows are recorded, in %.1f s and %.0f MiB; off by %.1e from steps that are not",
        " ".join(map(str, graphs.sizes)),
        time.monotonic() - began,
        max(0, before - table.device.memory().free) / 2**20,
        error,
    )
    return graphs
