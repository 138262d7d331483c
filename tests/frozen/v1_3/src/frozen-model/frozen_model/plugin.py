"""Registers the architecture. Imports neither the code nor torch."""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.hookspecs import ModelEntry, ModelsContext, hookimpl


@hookimpl
def jackfield_models(context: ModelsContext) -> Mapping[str, ModelEntry]:
    return {"LlamaForCausalLM": ModelEntry(shape="frozen_model.shape:describe", model="frozen_model.model:PlainLlama")}
