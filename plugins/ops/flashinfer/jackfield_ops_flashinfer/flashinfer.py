"""Plugin "flashinfer" of the kind `ops`: registers, and imports torch and FlashInfer only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import Ops, OpsContext, hookimpl
from jackfield_ops_flashinfer.parts import PARTS


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    from jackfield_ops_flashinfer.ops import FlashInferOps

    given = {} if context.options is None else dict(context.options)  # a pydantic model iterates over its fields
    return FlashInferOps(frozenset(given.get("fused", PARTS)))
