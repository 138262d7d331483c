"""Options of the plugin."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from jackfield_attention_flashinfer.settings import Settings

Prefill = Literal["auto", "fa2", "fa3"]
TensorCores = Literal["auto", "always"]


class FlashInferOptions(BaseModel):
    """Options of `attention.flashinfer`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    workspace_mib: int = Field(
        default=Settings.workspace_mib,
        ge=1,
        le=4096,
        description="Scratch memory for the partial results of split rows, in MiB. It is shared with whoever else asks the core "
        "for scratch. A batch for which it is too small is refused with a message that names this option.",
    )
    prefill: Prefill = Field(
        default="auto",
        description="Kernels of prefill: `fa2` runs on every GPU from compute capability 8.0 on, `fa3` on 9.0 alone. `auto` "
        "takes fa3 on 9.0 for rows of more than 64 new tokens without a window, and fa2 elsewhere.",
    )
    tensor_cores: TensorCores = Field(
        default="auto",
        description="Whether decode uses tensor cores `always`, or (`auto`) only where several query heads share a KV head or a "
        "window is set. What is recorded in a graph always does.",
    )
