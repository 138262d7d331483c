"""Arithmetic of pages, and the sum that must always hold over the KV pool. Knows numbers only, no pool and no cache."""

from __future__ import annotations

from dataclasses import dataclass


def pages_of(tokens: int, page_size: int) -> int:
    """Pages that `tokens` tokens take."""
    return -(-tokens // page_size)


def round_up(tokens: int, page_size: int) -> int:
    """Slots of the whole pages that `tokens` tokens take."""
    return -(-tokens // page_size) * page_size


def round_down(tokens: int, page_size: int) -> int:
    """Tokens in the whole pages that `tokens` tokens fill."""
    return tokens // page_size * page_size


@dataclass(frozen=True, kw_only=True)
class SlotAccounts:
    """Where every KV slot is, in token slots.

    free        with the allocator
    evictable   in the prefix cache, under no lease
    protected   in the prefix cache, under a lease
    pending     in the prefix cache, a copy is under way
    held        with running requests, outside the cache
    """

    total: int
    free: int
    evictable: int
    protected: int
    pending: int
    held: int

    @property
    def accounted(self) -> int:
        return self.free + self.evictable + self.protected + self.pending + self.held

    def problem(self) -> str | None:
        """What is wrong, or None."""
        parts = {name: getattr(self, name) for name in ("free", "evictable", "protected", "pending", "held")}
        negative = [name for name, value in parts.items() if value < 0]
        if negative:
            return f"negative slot counts: {', '.join(negative)} in {parts}"
        if self.accounted != self.total:
            return f"{self.total} slots in the pool, {self.accounted} accounted for: {parts}"
        return None
