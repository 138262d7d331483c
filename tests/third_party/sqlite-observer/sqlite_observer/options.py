"""What an operator may set."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class SqliteOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: Path = Field(default=Path("jackfield.db"), description="The file; it is made if it is not there.")
    rows_at_once: int = Field(default=500, ge=1, description="Rows that are held back and written together.")
