"""Numbers of several rounds, or of many requests, as a few: medians with their spread, percentiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

PERCENTILES = (50, 90, 99)


def summary(values: Sequence[float], unit: str, better: str) -> dict[str, Any]:
    """The median of rounds. spread: (largest - smallest) / median; better: "higher" or "lower"."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return {
        "value": middle,
        "min": least,
        "max": most,
        "spread": (most - least) / middle if middle else 0.0,
        "unit": unit,
        "better": better,
        "rounds": list(values),
    }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent do not exceed (nearest rank: it is one of the values). ordered: ascending,
    not empty."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def distribution(values: Sequence[float]) -> dict[str, float] | None:
    """mean, p50, p90, p99 and max; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    told = {f"p{percent}": percentile(ordered, percent) for percent in PERCENTILES}
    return {"mean": statistics.fmean(ordered), **told, "max": ordered[-1]}
