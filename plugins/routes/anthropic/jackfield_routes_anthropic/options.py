"""Options of the routes `anthropic`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AnthropicOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    any_model: bool = Field(
        default=False,
        description="Answer whatever model a client names, for programs that know only Claude's names; else an unknown one is "
        "refused with 404.",
    )
