"""Figures of a run: medians with their spread, and each target's ratio, round by round. Reads the document, and prints nothing.

A ratio is made within a round, of two measurements that were next to each other, and its median over the rounds counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plan import BEST_PEER, READ_BANDWIDTH, Plan, Target

MIB = 2**20


@dataclass(frozen=True)
class Spread:
    """values: one a round."""

    values: tuple[float, ...]

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """target; over: what it was held against, by name; ratio: None where something of it was not measured."""

    target: Target
    over: str | None
    ratio: Spread | None

    @property
    def met(self) -> bool | None:
        if self.ratio is None:
            return None
        target = self.target
        return self.ratio.value >= target.wanted if target.at_least else self.ratio.value <= target.wanted


class Results:
    """The measurements of a document, by entry and test."""

    def __init__(self, told: Mapping[str, Any], plan: Plan) -> None:
        self.told, self.plan = told, plan

    def records(self, entry: str, test: str) -> list[Mapping[str, Any]]:
        return [one for one in self.told["measurements"] if (one["entry"], one["test"]) == (entry, test)]

    def rounds(self, entry: str, test: str, field: str = "value") -> dict[int, float]:
        """Round -> what was measured in it; without those that failed."""
        return {one["round"]: one[field] for one in self.records(entry, test) if "error" not in one}

    def spread(self, entry: str, test: str, field: str = "value") -> Spread | None:
        found = tuple(self.rounds(entry, test, field).values())
        return Spread(found) if found else None

    def best_peer(self, test: str) -> str | None:
        """By the median; None where no peer was measured."""
        medians = {
            entry.name: spread.value
            for entry in self.plan.entries
            if not entry.ours and (spread := self.spread(entry.name, test)) is not None
        }
        choose = min if test == "first" else max
        return choose(medians, key=medians.__getitem__) if medians else None

    def verdict(self, target: Target) -> Verdict:
        over = self.best_peer(target.test) if target.over == BEST_PEER else target.over
        missing = target.over == BEST_PEER and over is None
        values = () if missing else self._memory(target) if target.memory else self._speeds(target, over)
        return Verdict(target=target, over=over, ratio=Spread(tuple(values)) if values else None)

    def _speeds(self, target: Target, over: str | None) -> Sequence[float]:
        ours = self.rounds(target.ours, target.test)
        if over is None:
            return tuple(ours.values())
        if over == READ_BANDWIDTH:
            read = self.rounds(target.ours, target.test, "read_gbps")
            size = self.told["weights_bytes"].get(target.ours, 0)
            return tuple(ours[number] * size / 1e9 / read[number] for number in ours)
        theirs = self.rounds(over, target.test)
        return tuple(ours[number] / theirs[number] for number in ours if number in theirs)

    def _memory(self, target: Target) -> Sequence[float]:
        size = self.told["weights_bytes"].get(target.ours)
        less = self.told["import_torch_mib"] if target.less else 0.0
        peaks = self.rounds(target.ours, target.test, "peak_rss_mib").values()
        return tuple((peak - less) * MIB / size for peak in peaks) if size else ()
