"""Options of the plugin."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from jackfield_ops_flashinfer.parts import PARTS, Part


class FlashInferOpsOptions(BaseModel):
    """Options of `ops.flashinfer`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fused: tuple[Part, ...] = Field(
        default=PARTS,
        description="The operators that are FlashInfer's; the others are plain torch. `norm`: RMS norm, with the residual's sum; "
        "`rotary`: of queries and keys; `activation`: of a gated MLP; `top_k`: the selection behind top-k and top-p sampling.",
    )
