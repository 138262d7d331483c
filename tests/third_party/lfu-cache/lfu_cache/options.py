"""What an operator may set."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class LfuOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    half_life: int = Field(default=1000, ge=1, description="Requests after which what was counted counts half.")
