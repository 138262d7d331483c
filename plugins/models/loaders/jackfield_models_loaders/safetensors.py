"""Plugin `safetensors`: checkpoints in Hugging Face's layout. Knows nothing but where its source lives."""

from __future__ import annotations

from jackfield.hookspecs import LoaderContext, ModelSource, hookimpl


@hookimpl
def jackfield_model_source(context: LoaderContext) -> ModelSource:
    from jackfield_models_loaders.safetensors_source import SafetensorsSource

    return SafetensorsSource(context.path, context.overrides)
