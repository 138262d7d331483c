"""Whether a context is one that this package's worker can serve."""

from __future__ import annotations

from jackfield.hookspecs import WorkerContext, WorkerStack


def stack_of(context: WorkerContext) -> WorkerStack:
    """The stack. Raises ValueError that says what this worker does not do."""
    if context.stack is None:
        raise ValueError(
            f'worker {context.instance!r} runs a model: its manifest must list needs = ["attention", "ops", "model", "loader"]'
        )
    shard = context.shard
    if (shard.tp_size, shard.pp_size) != (1, 1):
        raise ValueError(
            f"this worker runs one rank; a run of {shard.tp_size} tensor-parallel and {shard.pp_size} pipeline ranks "
            "is not there yet: use --tp-size 1 --pp-size 1"
        )
    if context.max_context > context.stack.shape.max_context:
        raise ValueError(
            f"--context-length {context.max_context} is beyond the model's {context.stack.shape.max_context} positions"
        )
    if context.vocab_size != context.stack.shape.vocab_size:
        raise ValueError(
            f"the model has {context.stack.shape.vocab_size} tokens in its vocabulary, the run {context.vocab_size}"
        )
    return context.stack
