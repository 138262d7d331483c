"""Plugin "torch" of the kind `attention`: registers, and imports torch only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import AttentionBackend, AttentionContext, hookimpl


@hookimpl
def jackfield_attention_backend(context: AttentionContext) -> AttentionBackend:
    if context.deterministic:
        from jackfield_attention_torch.invariant import InvariantAttention

        return InvariantAttention(context)
    from jackfield_attention_torch.backend import TorchAttention

    return TorchAttention(context)
