"""Entry point: hook implementations only; torch is imported when the operators are made."""

from __future__ import annotations

from jackfield.hookspecs import Ops, OpsContext, hookimpl


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    """The operators; nothing in them depends on the context."""
    from jackfield_ops_torch.ops import TorchOps

    return TorchOps()
