"""Options of the loader plugins."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class DummyOptions(BaseModel):
    """Options of `dummy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, description="Seed of the random weights; every rank must use the same.")
    scale: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Standard deviation of the weights; default: the config's initializer_range, else 0.02.",
    )
