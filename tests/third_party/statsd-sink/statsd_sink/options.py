"""What an operator may set."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StatsdOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    host: str = Field("127.0.0.1", description="Host of the StatsD daemon.")
    port: int = Field(8125, ge=1, le=65535, description="UDP port of the StatsD daemon.")
    tags: Literal["datadog", "none"] = Field("datadog", description="How labels are written.")
    datagram_bytes: int = Field(1432, ge=128, le=65507, description="Most bytes in one datagram.")
