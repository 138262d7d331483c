"""Model `gemma`."""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.hookspecs import ModelEntry, hookimpl


@hookimpl
def jackfield_models() -> Mapping[str, ModelEntry]:
    return {"GemmaForCausalLM": ModelEntry(shape="gemma_model.shape:describe", model="gemma_model.model:Gemma")}
