"""Entry point: which architectures this distribution has code for. Imports neither the code nor torch."""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.hookspecs import ModelEntry, ModelsContext, hookimpl


@hookimpl
def jackfield_models(context: ModelsContext) -> Mapping[str, ModelEntry]:
    """One code serves all; the differences are data (`settings.FAMILIES`)."""
    from jackfield_models_encoder.settings import FAMILIES

    entry = ModelEntry(shape="jackfield_models_encoder.shape:describe", model="jackfield_models_encoder.model:Bert")
    return dict.fromkeys(FAMILIES, entry)
