"""Entry point: which architectures this distribution has code for. Imports neither the code nor torch."""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.hookspecs import ModelEntry, ModelsContext, hookimpl


@hookimpl
def jackfield_models(context: ModelsContext) -> Mapping[str, ModelEntry]:
    """One code serves both generations; the differences are data (`settings.GENERATIONS`)."""
    from jackfield_models_qwen.settings import GENERATIONS

    entry = ModelEntry(shape="jackfield_models_qwen.shape:describe", model="jackfield_models_qwen.model:Qwen")
    return dict.fromkeys(GENERATIONS, entry)
