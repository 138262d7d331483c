"""Recorded steps held against the same steps without a graph, once at start.

It stands in for no conformance suite: it finds a plan that is wrong in this run, with its model, sizes and device.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from jackfield.hookspecs import WorkerLimits
from jackfield.model_executor.forward_batch import make_forward_batch
from jackfield.model_executor.graphs.decode_graphs import DecodeGraphs
from jackfield.model_executor.graphs.failures import GraphMismatch
from jackfield.model_executor.graphs.sample_steps import SampleSteps
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.window_table import WindowTable

ALLOWED: Mapping[torch.dtype, float] = MappingProxyType(
    {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 1e-1}
)
"""Root mean square of a row's error as a share of that of its logits. The two ways may round differently in each product, as a
padded batch takes other kernels; a wrong length, row or slot costs a multiple of it."""


@torch.inference_mode()
def check_sameness(
    graphs: DecodeGraphs,
    runner: ModelRunner,
    limits: WorkerLimits,
    table: ReqToTokenTable,
    tables: Mapping[str, ReqToTokenTable | WindowTable],
    newest: torch.Tensor,
    dtype: torch.dtype,
) -> float:
    """Two steps through each graph, of different rows and lengths. Returns the largest error. Raises GraphMismatch."""
    sample = SampleSteps(limits, table, tables, newest)
    worst = 0.0
    try:
        sample.fill(runner)
        for size in graphs.sizes:
            # Some padding in each that has room for it; the second step is the shorter one, behind the longer.
            for seed, rows in ((size, size - size // 4), (size + 1, max(1, size // 2))):
                batch = sample.step(min(rows, sample.rows), seed)
                # The graph comes first: it must write the KV that its own attention reads.
                found = graphs.replay(runner, batch, size)
                eager = runner.forward(make_forward_batch(batch, table, newest, tables))
                errors = _errors(found, eager)
                at, worst = int(errors.argmax()), max(worst, float(errors.max()))
                if worst > ALLOWED[dtype]:
                    where = f"row {at} of {batch.rows.size}, with {int(batch.computed[at]) + 1} tokens,"
                    raise GraphMismatch(size, where, worst, ALLOWED[dtype], runner.attention.decode_name)
    finally:
        sample.forget()
    return worst


def _errors(found: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
    """float [n]; infinite where only one of the two is finite."""
    if not bool((found.isfinite() == eager.isfinite()).all()):
        return torch.where((found.isfinite() == eager.isfinite()).all(dim=1), 0.0, torch.inf)
    found, eager = found.nan_to_num(0.0, 0.0, 0.0), eager.nan_to_num(0.0, 0.0, 0.0)
    size = eager.square().mean(dim=1).sqrt().clamp(min=1e-20)
    return (found - eager).square().mean(dim=1).sqrt() / size
