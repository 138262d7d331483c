"""How the memory for KV is shared between the pool of all layers' slots and the smaller pool of window layers. Knows pages
and bytes, not tensors."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from jackfield.hookspecs import KVGroup, KVLayout
from jackfield.model_executor.kv_tensors import page_bytes
from jackfield.model_executor.memory import CPU_MOST_TOKENS, InsufficientMemory, gib, pool_tokens, set_aside

WINDOW_SHARE = 0.8
"""Of the slots, as many have room for KV of window layers where all of them could be wanted: short requests need them all."""


@dataclass(frozen=True, kw_only=True)
class PoolSizes:
    """total_slots, window, window_slots   as in `WorkerLimits`
    bytes   of both pools, the dummy pages included
    """

    total_slots: int
    bytes: int
    window: int | None = None
    window_slots: int = 0


def pool_sizes(
    groups: Sequence[KVGroup],
    layouts: Mapping[str, KVLayout],
    *,
    kv_dtype: torch.dtype,
    page_size: int,
    wanted: int | None,
    available: int,
    device: torch.device,
    window_pool: bool,
    max_running: int,
    max_tokens: int,
    max_context: int,
) -> PoolSizes:
    """wanted: `--max-total-tokens`; available: bytes; window_pool: `WorkerContext.window_pool`. Raises InsufficientMemory."""
    windows = [group for group in groups if group.kind == "window" and group.window is not None]
    if not window_pool or not windows:
        per_page = page_bytes(groups, layouts, page_size, kv_dtype)
        tokens = pool_tokens(
            wanted=wanted, page_size=page_size, page_bytes=per_page, available=available, device=device
        )
        return PoolSizes(total_slots=tokens, bytes=(tokens // page_size + 1) * per_page)
    window = max(group.window for group in windows if group.window is not None)
    narrow = page_bytes(windows, layouts, page_size, kv_dtype)
    wide = page_bytes([group for group in groups if group not in windows], layouts, page_size, kv_dtype)
    # What a request has beside its largest step, with the ends of pages; steps in flight.
    row = _pages(2 * window, page_size) + 4
    alone = row + _pages(max_tokens, page_size) + 1
    crowd = max_running * row + 2 * _pages(max_tokens, page_size)

    most_narrow = crowd if wide else min(crowd, max(set_aside(available, device) // narrow - 1, 1))

    def narrow_pages(pages: int) -> int:
        return min(pages, most_narrow, max(int(WINDOW_SHARE * pages), alone))

    def size(pages: int) -> int:
        return (pages + 1) * wide + (narrow_pages(pages) + 1) * narrow

    if wanted is not None:
        pages = wanted // page_size
        if pages == 0 or size(pages) > available:
            raise InsufficientMemory(
                f"--max-total-tokens {wanted}: in pages of {page_size} tokens that takes {gib(size(pages))} of the "
                f"{gib(available)} available on {device}, and one page is the least; name another number, or none"
            )
    else:
        within = set_aside(available, device)
        # Without full layers a slot number costs nothing, and more than all requests can take are of little use.
        most = within // wide if wide else _pages(max_running * max_context, page_size)
        if device.type == "cpu":
            most = min(most, _pages(CPU_MOST_TOKENS, page_size))
        pages = bisect_right(range(1, most + 1), within, key=size)
        if pages == 0:
            raise InsufficientMemory(
                f"not one page of {page_size} tokens fits into the {gib(within)} of {device} set aside for KV: free memory, "
                "lower --page-size, or name --max-total-tokens"
            )
    return PoolSizes(
        total_slots=pages * page_size,
        bytes=size(pages),
        window=window,
        window_slots=narrow_pages(pages) * page_size,
    )


def _pages(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)
