"""The plugin's options as the backend has them. Needs no pydantic, which checks them where an operator wrote them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The fields of `FlashInferOptions`, where they are described."""

    workspace_mib: int = 256
    prefill: str = "auto"
    tensor_cores: str = "auto"
