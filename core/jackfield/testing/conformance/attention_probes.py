"""What the attention suite looks at beside numbers: scratch memory that is never clean, inputs before and after, and whether
a plan waits for its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.model_executor.workspace import Workspace
from jackfield.testing.attention_batches import PreparedCase


class DirtyWorkspace(Workspace):
    """Scratch memory is shared and its contents are undefined: here, all ones, which is NaN in every float format."""

    def __call__(self, nbytes: int) -> torch.Tensor:
        return super().__call__(nbytes).fill_(0xFF)


def fused(
    q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The same values as slices of one tensor [tokens, everything], as a fused projection leaves them. [n, heads, size] each."""
    if k is None or v is None:
        return q, k, v
    whole = torch.cat([one.flatten(1) for one in (q, k, v)], dim=1)
    parts = torch.split(whole, [one[0].numel() for one in (q, k, v)], dim=1)
    q, k, v = (part.view(one.shape) for part, one in zip(parts, (q, k, v), strict=True))
    return q, k, v


def frozen(prepared: PreparedCase) -> dict[str, NDArray[np.uint8]]:
    """A copy of the bytes of all that a backend is given to read: name -> uint8."""
    batch = prepared.batch
    tensors: dict[str, torch.Tensor | None] = {
        "rows": batch.rows,
        "q_starts": batch.q_starts,
        "kv_lens": batch.kv_lens,
        "host.q_lens": torch.from_numpy(batch.host.q_lens),
        "host.kv_lens": torch.from_numpy(batch.host.kv_lens),
    }
    tensors["mask.among"] = None if batch.mask is None else batch.mask.among
    tensors |= {f"out_slots[{name!r}]": slots for name, slots in batch.out_slots.items()}
    tensors |= {f"tables[{name!r}]": table for name, table in prepared.context.tables.items()}
    for layer, given in prepared.inputs.items():
        tensors |= {f"{word} of layer {layer}": tensor for word, tensor in zip("qkv", given, strict=True)}
    return {
        name: tensor.detach().contiguous().cpu().flatten().view(torch.uint8).numpy().copy()
        for name, tensor in tensors.items()
        if tensor is not None
    }


def waits(device: str, act: Callable[[], Any]) -> str:
    """Whether `act` makes the host wait for the device: what it does, or "". On CUDA the driver tells; elsewhere the
    operations are looked at that would have to wait there, because their result is a number or a size on the host."""
    if device == "cuda":
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            act()
        except RuntimeError as error:
            return str(error).splitlines()[0]
        finally:
            torch.cuda.set_sync_debug_mode(before)
        return ""
    with torch.autograd.profiler.profile() as profile:
        act()
    names = {event.name.removeprefix("aten::") for event in profile.function_events}
    return ", ".join(sorted(names & _WAITING))


_WAITING = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal"})
"""The operations of torch whose result's value or size the host must know; `int(t)`, `t[mask]` and the like come to them."""
