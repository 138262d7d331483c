"""Plugin "cpu" of the kind `attention`: registers, and imports torch only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import AttentionBackend, AttentionContext, hookimpl


@hookimpl
def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
    from jackfield_ops_cpu.attention import NativeAttention

    return NativeAttention(context)
