"""Options of `ops.triton`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Fused = Literal["norm", "rotary", "activation", "sampling"]


class TritonOpsOptions(BaseModel):
    """Which kernels are used; torch does what the others would."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fused: tuple[Fused, ...] = Field(
        default=("norm", "rotary", "activation", "sampling"),
        description="The operators that have a kernel: norm (with the residual), rotary (with norms of heads and the KV write), "
        "activation (of gated MLPs), sampling. Those left out are plain torch.",
    )
