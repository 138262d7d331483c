"""Entry point of the worker plugin `simulated`."""

from __future__ import annotations

from jackfield.hookspecs import ModelWorker, WorkerContext, hookimpl


@hookimpl
def jackfield_model_worker(context: WorkerContext) -> ModelWorker:
    from jackfield_worker_simulated.options import SimulatedOptions
    from jackfield_worker_simulated.worker import SimulatedWorker

    options = context.options or SimulatedOptions()
    if not isinstance(options, SimulatedOptions):
        raise TypeError(f"worker.{context.instance} wants SimulatedOptions, got {type(options).__name__}")
    return SimulatedWorker(context, options)
