"""What an operator may set."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TurnsOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    decodes: int = Field(default=2, ge=1, description="Steps of decode that come between two of prefill.")
