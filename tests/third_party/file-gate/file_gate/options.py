"""What an operator may set."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class FileGateOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Path = Field(description="The file that opens the gate.")
    interval_s: float = Field(0.05, gt=0, description="Seconds between two looks.")
