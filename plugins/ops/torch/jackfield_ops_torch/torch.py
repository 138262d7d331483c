"""Entry point: hook implementations only; torch is imported when the operators are made."""

from __future__ import annotations

from jackfield.hookspecs import Ops, OpsContext, hookimpl


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    """The operators; of the context they need to know only whether rows must be independent of their batch."""
    if context.deterministic:
        from jackfield_ops_torch.invariant import InvariantOps

        return InvariantOps()
    from jackfield_ops_torch.ops import TorchOps

    return TorchOps()
