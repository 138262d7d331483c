"""Worker `replay`."""

from __future__ import annotations

from jackfield.hookspecs import ModelWorker, WorkerContext, hookimpl
from replay_worker.options import ReplayOptions


@hookimpl
def jackfield_model_worker(context: WorkerContext) -> ModelWorker:
    from replay_worker.worker import ReplayWorker

    if not isinstance(context.options, ReplayOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return ReplayWorker(context.options, context)
