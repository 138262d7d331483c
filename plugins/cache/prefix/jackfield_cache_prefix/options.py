"""Options of the cache plugins."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Eviction = Literal["lru", "lfu", "fifo", "mru", "filo", "priority", "slru"]


class RadixOptions(BaseModel):
    """Options of `radix`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    eviction: Eviction = Field(
        default="lru",
        description="Which unleased prefix goes first: the least recently used (lru), the least often used (lfu), the one "
        "stored first (fifo), the most recently used (mru), the one stored last (filo), that of the lowest request priority "
        "(priority), or those that one request alone has used before the others (slru).",
    )
