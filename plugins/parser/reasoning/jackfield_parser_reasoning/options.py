"""Options of the reasoning parsers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ThinkOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    start: str = Field(default="<think>", min_length=1, max_length=64, description="Text that opens the reasoning.")
    end: str = Field(default="</think>", min_length=1, max_length=64, description="Text that ends it.")
    always: bool = Field(
        default=False,
        description="The model reasons first in every answer, so that the answer begins inside it even where neither the prompt "
        "nor the model opens it.",
    )
    special: bool = Field(default=False, description="The two texts are special tokens of the model.")
