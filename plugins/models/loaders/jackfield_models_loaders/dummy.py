"""Plugin `dummy`: random weights. Knows nothing but where its source and its options live."""

from __future__ import annotations

from jackfield.hookspecs import LoaderContext, ModelSource, hookimpl


@hookimpl
def jackfield_model_source(context: LoaderContext) -> ModelSource:
    from jackfield_models_loaders.dummy_source import DummySource
    from jackfield_models_loaders.options import DummyOptions

    options = context.options if isinstance(context.options, DummyOptions) else DummyOptions()
    return DummySource(context.path, context.overrides, options)
