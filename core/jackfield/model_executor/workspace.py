"""One piece of scratch memory that attention backends share: they never run at once."""

from __future__ import annotations

import torch


class Workspace:
    """Call it with a number of bytes; it grows and never shrinks."""

    def __init__(self, device: torch.device | str) -> None:
        self._held = torch.empty(0, dtype=torch.uint8, device=device)

    def __call__(self, nbytes: int) -> torch.Tensor:
        """uint8 [>= nbytes], contents undefined."""
        if self._held.numel() < nbytes:
            self._held = torch.empty(nbytes, dtype=torch.uint8, device=self._held.device)
        return self._held
