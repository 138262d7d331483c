"""Options of the cache plugins."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Eviction = Literal["lru"]


class RadixOptions(BaseModel):
    """Options of `radix`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    eviction: Eviction = Field(
        default="lru", description="Which unleased prefix goes first: the one whose last lease ended longest ago."
    )
