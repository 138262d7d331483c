"""Plugin "triton" of the kind `ops`: registers, and imports Triton only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import Ops, OpsContext, hookimpl


@hookimpl
def jackfield_ops(context: OpsContext) -> Ops:
    """The operators; of the context they need the options alone, and without any they use all kernels."""
    from jackfield_ops_triton.ops import KERNELS, TritonOps, check_device

    check_device(context.device)
    if context.options is None:
        return TritonOps(KERNELS)
    from jackfield_ops_triton.options import TritonOpsOptions

    if not isinstance(context.options, TritonOpsOptions):
        raise TypeError(f"ops.{context.instance} wants TritonOpsOptions, got {type(context.options).__name__}")
    return TritonOps(context.options.fused)
