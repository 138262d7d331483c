"""Entry point of `ops.cpu`: hook implementations only; torch is imported when the operators are made."""

from __future__ import annotations

from jackfield.hookspecs import Ops, OpsContext, hookimpl


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    """The operators, with as many threads as torch has."""
    import torch

    from jackfield_ops_cpu.ops import CpuOps

    return CpuOps(
        getattr(torch, context.dtype),
        threads=torch.get_num_threads(),
        alone=context.tp_size == 1,
        quantization=context.quantization,
    )
