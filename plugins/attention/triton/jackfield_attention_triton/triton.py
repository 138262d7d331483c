"""Plugin "triton" of the kind `attention`: registers, and imports Triton only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import AttentionBackend, AttentionContext, hookimpl


@hookimpl
def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
    from jackfield_attention_triton.backend import TritonAttention

    if context.options is None:
        return TritonAttention(context)
    from jackfield_attention_triton.options import TritonAttentionOptions

    if not isinstance(context.options, TritonAttentionOptions):
        raise TypeError(
            f"attention.{context.instance} wants TritonAttentionOptions, got {type(context.options).__name__}"
        )
    return TritonAttention(context, max_kv_splits=context.options.max_kv_splits)
