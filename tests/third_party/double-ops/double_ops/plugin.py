"""Ops `double`; torch is imported when they are made."""

from __future__ import annotations

from jackfield.hookspecs import Ops, OpsContext, hookimpl


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    from double_ops.operators import DoubleOps

    return DoubleOps()
