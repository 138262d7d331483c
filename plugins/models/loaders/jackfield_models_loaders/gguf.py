"""Plugin `gguf`: GGUF files. Knows nothing but where its source lives."""

from __future__ import annotations

from jackfield.hookspecs import LoaderContext, ModelSource, hookimpl


@hookimpl
def jackfield_model_source(context: LoaderContext) -> ModelSource:
    from jackfield_models_loaders.gguf_source import GgufSource

    return GgufSource(context.path, context.overrides)
