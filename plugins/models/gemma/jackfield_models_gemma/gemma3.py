"""Entry point: which architecture this distribution has code for. Imports neither the code nor torch."""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.hookspecs import ModelEntry, ModelsContext, hookimpl


@hookimpl
def jackfield_models(context: ModelsContext) -> Mapping[str, ModelEntry]:
    """The text model alone; checkpoints that also see images have another architecture name."""
    entry = ModelEntry(shape="jackfield_models_gemma.shape:describe", model="jackfield_models_gemma.model:Gemma3")
    return {"Gemma3ForCausalLM": entry}
