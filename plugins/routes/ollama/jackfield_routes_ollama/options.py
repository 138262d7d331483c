"""Options of the routes `ollama`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class OllamaOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    root: bool = Field(
        default=False,
        description="Answer / with Ollama's sentence, without a key; the playground has this path otherwise.",
    )
    api_version: str = Field(
        default="0.12.0",
        min_length=1,
        description="What /api/version says: the version of Ollama whose API this follows, by which clients decide what they "
        "may send.",
    )
