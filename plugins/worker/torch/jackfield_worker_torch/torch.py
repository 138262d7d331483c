"""Plugin "torch" of the kind `worker`: registers, and imports torch only when it is made."""

from __future__ import annotations

from jackfield.hookspecs import ModelWorker, WorkerContext, hookimpl


@hookimpl
def jackfield_model_worker(context: WorkerContext) -> ModelWorker:
    from jackfield.model_executor.torch_worker import TorchWorker

    return TorchWorker(context)
