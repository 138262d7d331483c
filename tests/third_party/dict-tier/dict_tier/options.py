"""What an operator may set."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class DictOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    most_blocks: int = Field(1000, ge=1, description="Blocks that are kept.")
    min_load_tokens: int = Field(16, ge=1, description="A request waits for a load only if it brings so many tokens.")
