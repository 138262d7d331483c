"""Options of the KV tiers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import TierRule

MiB = Annotated[int, Field(ge=1)]


class TierOptions(BaseModel):
    """What both have."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    write: Literal["through", "back"] = Field(
        default="through",
        description="through: a block is copied when it enters the prefix cache; back: when it is evicted from it.",
    )
    write_after: Annotated[int, Field(ge=1)] = Field(
        default=1, description="With write=through: copy only blocks that so many requests have had in their prompt."
    )
    min_load_tokens: Annotated[int, Field(ge=1)] = Field(
        default=64, description="A request waits for a load only if it brings at least so many tokens."
    )

    def rule(self) -> TierRule:
        return TierRule(write=self.write, write_after=self.write_after, min_load_tokens=self.min_load_tokens)


class HostOptions(TierOptions):
    """Options of `host`."""

    size_mib: MiB = Field(default=1024, description="Most MiB of blocks.")


class DiskOptions(TierOptions):
    """Options of `disk`."""

    path: Path = Field(description="Directory of the blocks; made if it is not there.")
    size_mib: MiB = Field(default=10240, description="Most MiB of files.")
    clear_on_flush: bool = Field(
        default=False, description="Whether a flush of the cache deletes the files; else they outlast it."
    )
