"""The scheduler's numbers at one moment, for `/server_info`, health checks and people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class SchedulerState:
    """steps            committed steps
    last_step_age_s     seconds since the last commit; None before the first
    total .. held       KV slots, see `mem_cache.accounting.SlotAccounts`; held: with running requests
    duplicate_rids      messages dropped because their id was live
    retractions         running requests that were taken back into the queue, so far
    new_token_ratio     share of the outputs to come that is reserved now, see `NewTokenRatio`
    invariant_failures  idle checks that failed (they are in the log)
    window           the same slots of the window pool, without pending; empty where there is none
    tiers            KV tier -> its numbers, and under "" those of loads; empty without tiers
    worker           what the worker tells of itself
    """

    running: int
    waiting: int
    in_flight: int
    steps: int
    last_step_age_s: float | None
    total: int
    free: int
    evictable: int
    protected: int
    pending: int
    held: int
    duplicate_rids: int = 0
    invariant_failures: int = 0
    retractions: int = 0
    new_token_ratio: float = 1.0
    window: Mapping[str, int] = field(default_factory=dict)
    tiers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    worker: Mapping[str, float | int | str | None] = field(default_factory=dict)

    def as_data(self) -> dict[str, float | int | str | None]:
        """The same as the plain values of a `ControlReply`; KV numbers are named kv_*."""
        return {
            "running": self.running,
            "waiting": self.waiting,
            "in_flight": self.in_flight,
            "steps": self.steps,
            "last_step_age_s": self.last_step_age_s,
            "kv_total": self.total,
            "kv_free": self.free,
            "kv_evictable": self.evictable,
            "kv_protected": self.protected,
            "kv_pending": self.pending,
            "kv_held": self.held,
            "duplicate_rids": self.duplicate_rids,
            "invariant_failures": self.invariant_failures,
            "retractions": self.retractions,
            "new_token_ratio": self.new_token_ratio,
            **{f"window_{name}": n for name, n in self.window.items()},
            **{f"tier_{tier}_{name}": n for tier, numbers in self.tiers.items() for name, n in numbers.items()},
            **{f"worker_{name}": value for name, value in self.worker.items()},
        }
