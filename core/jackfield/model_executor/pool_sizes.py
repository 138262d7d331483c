"""How the memory for KV is shared between the pool of all layers' slots and the smaller pool of window layers. Knows pages
and bytes, not tensors. A pool that does not fit is an error here, before anything is allocated: an operating system that
overcommits would end the process later instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from jackfield.hookspecs import InsufficientMemory, KVGroup, KVLayout
from jackfield.model_executor.kv_tensors import page_bytes
from jackfield.model_executor.room import Room, gib

WINDOW_SHARE = 0.8
"""Of the slots, as many have room for KV of window layers where all of them could be wanted: short requests need them all."""

_SMALLER = (
    "free memory, raise --mem-fraction-static, lower --max-prefill-tokens, --max-running-requests or --page-size, or take a "
    "narrower --kv-cache-dtype"
)


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
    room: Room,
    window_pool: bool,
    max_running: int,
    max_tokens: int,
    max_context: int,
) -> PoolSizes:
    """wanted: `--max-total-tokens`; window_pool: `WorkerContext.window_pool`. Raises InsufficientMemory."""
    windows = [group for group in groups if group.kind == "window" and group.window is not None]
    if not window_pool or not windows:
        per_page = page_bytes(groups, layouts, page_size, kv_dtype)
        tokens = pool_tokens(wanted=wanted, page_size=page_size, page_bytes=per_page, room=room)
        return PoolSizes(total_slots=tokens, bytes=(tokens // page_size + 1) * per_page)
    window = max(group.window for group in windows if group.window is not None)
    narrow = page_bytes(windows, layouts, page_size, kv_dtype)
    wide = page_bytes([group for group in groups if group not in windows], layouts, page_size, kv_dtype)
    # What a request has beside its largest step, with the ends of pages; steps in flight.
    row = _pages(2 * window, page_size) + 4
    alone = row + _pages(max_tokens, page_size) + 1
    crowd = max_running * row + 2 * _pages(max_tokens, page_size)

    most_narrow = crowd if wide else min(crowd, max(room.share // narrow - 1, 1))

    def narrow_pages(pages: int) -> int:
        return min(pages, most_narrow, max(int(WINDOW_SHARE * pages), alone))

    def size(pages: int) -> int:
        return (pages + 1) * wide + (narrow_pages(pages) + 1) * narrow

    if wanted is not None:
        pages = _wanted_pages(wanted, page_size)
        if size(pages) > room.most:
            fitting = bisect_right(range(1, pages + 1), room.most, key=size)
            raise _too_many(pages * page_size, size(pages), fitting * page_size, room)
    else:
        # Without full layers a slot number costs nothing, and more than all requests can take are of little use.
        most = room.share // wide if wide else _pages(max_running * max_context, page_size)
        if room.most_tokens is not None:
            most = min(most, _pages(room.most_tokens, page_size))
        pages = bisect_right(range(1, most + 1), room.share, key=size)
        if pages == 0:
            raise _not_one(page_size, size(1), room)
    return PoolSizes(
        total_slots=pages * page_size,
        bytes=size(pages),
        window=window,
        window_slots=narrow_pages(pages) * page_size,
    )


def pool_tokens(*, wanted: int | None, page_size: int, page_bytes: int, room: Room) -> int:
    """Tokens of the KV pool, a multiple of `page_size`, the dummy page not counted.

    wanted: `--max-total-tokens`, rounded down to pages; None: choose. Raises InsufficientMemory.
    """
    fitting = max(0, room.most // page_bytes - 1) * page_size  # one page goes to the dummy
    if wanted is not None:
        tokens = _wanted_pages(wanted, page_size) * page_size
        if tokens > fitting:
            raise _too_many(tokens, (tokens // page_size + 1) * page_bytes, fitting, room)
        return tokens
    tokens = max(0, room.share // page_bytes - 1) * page_size
    if room.most_tokens is not None:
        tokens = min(tokens, room.most_tokens // page_size * page_size)
    if tokens == 0:
        raise _not_one(page_size, 2 * page_bytes, room)
    return tokens


def _wanted_pages(wanted: int, page_size: int) -> int:
    if wanted < page_size:
        raise InsufficientMemory(
            f"--max-total-tokens {wanted} is less than one page of {page_size} tokens; raise it or lower --page-size"
        )
    return wanted // page_size


def _too_many(tokens: int, needed: int, fitting: int, room: Room) -> InsufficientMemory:
    """fitting: tokens that would do, 0: none."""
    advice = f"lower --max-total-tokens to {fitting} or less" if fitting else _SMALLER
    return InsufficientMemory(f"a KV pool of {tokens} tokens takes {gib(needed)}, but {room.why}: {advice}")


def _not_one(page_size: int, needed: int, room: Room) -> InsufficientMemory:
    return InsufficientMemory(
        f"not one page of {page_size} tokens fits into the {gib(room.share)} that the KV cache may take, as with the dummy page "
        f"it takes {gib(needed)} ({room.why}): {_SMALLER}; or name --max-total-tokens"
    )


def _pages(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)
