"""What an operator may set."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class LeastWorkOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    output_weight: float = Field(1.0, ge=0, description="Prompt tokens that one possible output token is worth.")
    patience: float = Field(50.0, ge=0, description="Tokens of work that one second of waiting takes off.")
