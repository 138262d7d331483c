"""Registers the backend; torch is imported when one is made."""

from __future__ import annotations

from jackfield.hookspecs import AttentionBackend, AttentionContext, hookimpl


@hookimpl
def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
    from frozen_attention.backend import DenseAttention

    return DenseAttention(context)
