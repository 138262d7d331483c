"""What an operator may set."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TagOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str = Field("draft", pattern="^[A-Za-z:_-]{1,30}$", description="The word of the tag.")
