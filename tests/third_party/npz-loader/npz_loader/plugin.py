"""Loader `npz`."""

from __future__ import annotations

from jackfield.hookspecs import LoaderContext, ModelSource, hookimpl


@hookimpl
def jackfield_model_source(context: LoaderContext) -> ModelSource:
    from npz_loader.source import NpzSource

    return NpzSource(context.path, context.overrides)
