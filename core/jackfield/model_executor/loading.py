"""From a stack's model entry and source to a loaded model. Whatever is wrong with a checkpoint is said in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import torch

from jackfield.hookspecs import Model, ModelSourceError, Ops, Shard, Weight, WorkerStack
from jackfield.layers.builder import TorchBuilder
from jackfield.model_executor.dtypes import dtype_name
from jackfield.model_executor.weight_cache.kept import KeptWeights, kept_weights

Progress = Callable[[str, int, int], None]


def load_model(
    stack: WorkerStack,
    *,
    shard: Shard,
    ops: Ops,
    device: torch.device,
    dtype: torch.dtype,
    max_context: int,
    progress: Progress | None = None,
) -> Model:
    """Build the model on its device and fill it. Raises ModelSourceError, or UnsupportedModel from the model's code.

    progress    called with ("loading weights", tensors so far, of how many)
    """
    kept = kept_weights(stack, ops=ops, shard=shard, device=str(device), dtype=dtype_name(dtype))
    try:
        model = _filled(stack, shard, ops, device, dtype, max_context, progress, kept)
    except BaseException:
        if kept is not None:
            kept.drop()
        raise
    if kept is not None:
        kept.finish()
    return model


def _filled(
    stack: WorkerStack,
    shard: Shard,
    ops: Ops,
    device: torch.device,
    dtype: torch.dtype,
    max_context: int,
    progress: Progress | None,
    kept: KeptWeights | None,
) -> Model:
    builder = TorchBuilder(
        shape=stack.shape,
        shard=shard,
        ops=ops,
        device=str(device),
        dtype=dtype_name(dtype),
        encodings=stack.ops_encodings,
        packed_only=stack.packed_only,
        kept=kept,
        max_context=max_context,
    )
    model = model_class(stack.model.model)(stack.config, builder)
    weights = stack.source.weights(shard)
    if progress is not None:
        weights = _watched(weights, len(builder.router.expected), progress)
    report = model.load(weights)
    if not report.ok:
        problems = report.problems()
        noun = "problem" if len(problems) == 1 else "problems"
        raise ModelSourceError(
            f"the checkpoint does not hold what {stack.shape.architecture} needs; {len(problems)} {noun}:\n  "
            + "\n  ".join(problems)
        )
    return model


def _watched(weights: Iterator[Weight], total: int, progress: Progress) -> Iterator[Weight]:
    """total: tensors that the model asks for; the checkpoint may hold others, which are not counted beyond it."""
    for done, weight in enumerate(weights):
        if done < total:
            progress("loading weights", done, total)
        yield weight
    progress("loading weights", total, total)


def model_class(target: str) -> type[Model]:
    """ "package.module:Class" -> the class. TypeError if it is no `Model`, ValueError if the text has another form."""
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise ValueError(f"a model entry has the form 'package.module:Class', not {target!r}")
    found = getattr(import_module(module_name), name)
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise TypeError(f"{target} is not a subclass of jackfield.hookspecs.Model")
    return found
