"""Options of the observer `jsonl`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class JsonlOptions(BaseModel):
    """Options of `jsonl`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: Path = Field(description="Where requests.jsonl, steps.jsonl and lives.jsonl are; made if it is missing.")
    steps: bool = Field(default=True, description="Whether to write steps.jsonl: a few lines for every step.")
