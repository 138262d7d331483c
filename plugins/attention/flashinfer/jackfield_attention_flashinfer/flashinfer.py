"""Plugin "flashinfer" of the kind `attention`: registers, and imports torch and FlashInfer only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import AttentionBackend, AttentionContext, hookimpl
from jackfield_attention_flashinfer.settings import Settings


@hookimpl
def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
    from jackfield_attention_flashinfer.backend import FlashInferAttention

    given = {} if context.options is None else dict(context.options)  # a pydantic model iterates over its fields
    return FlashInferAttention(context, Settings(**given))
