"""From a stack's model entry and source to a loaded model. Whatever is wrong with a checkpoint is said in one message."""

from __future__ import annotations

from importlib import import_module

import torch

from jackfield.hookspecs import Model, ModelSourceError, Ops, Shard, WorkerStack
from jackfield.layers.builder import TorchBuilder
from jackfield.model_executor.dtypes import dtype_name


def load_model(
    stack: WorkerStack, *, shard: Shard, ops: Ops, device: torch.device, dtype: torch.dtype, max_context: int
) -> Model:
    """Build the model on its device and fill it. Raises ModelSourceError, or UnsupportedModel from the model's code."""
    builder = TorchBuilder(
        shape=stack.shape,
        shard=shard,
        ops=ops,
        device=str(device),
        dtype=dtype_name(dtype),
        encodings=stack.ops_encodings,
        max_context=max_context,
    )
    model = model_class(stack.model.model)(stack.config, builder)
    report = model.load(stack.source.weights(shard))
    if not report.ok:
        problems = report.problems()
        noun = "problem" if len(problems) == 1 else "problems"
        raise ModelSourceError(
            f"the checkpoint does not hold what {stack.shape.architecture} needs; {len(problems)} {noun}:\n  "
            + "\n  ".join(problems)
        )
    return model


def model_class(target: str) -> type[Model]:
    """ "package.module:Class" -> the class. TypeError if it is no `Model`, ValueError if the text has another form."""
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f"a model entry has the form 'package.module:Class', not {target!r}")
    found = getattr(import_module(module_name), name)
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise TypeError(f"{target} is not a subclass of jackfield.hookspecs.Model")
    return found
