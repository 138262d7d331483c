"""Options of `attention.triton`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TritonAttentionOptions(BaseModel):
    """Options of `attention.triton`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_kv_splits: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Into how many parts the keys of one request are cut at most, so that a few long requests keep the whole "
        "GPU busy; 1 never cuts. How many there are is found batch by batch.",
    )
