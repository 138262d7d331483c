"""What an operator may set."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class ReplayOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Path | None = Field(default=None, description="The recording, JSON lines; not given: an empty one.")
    otherwise: list[int] | None = Field(
        default=None, min_length=1, description="Answer to what was not recorded; not given: that is an error."
    )
