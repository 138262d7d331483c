"""Pairwise covering arrays: few rows in which every pair of values of every two factors occurs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Greedy (each row takes the pair that is oldest among the uncovered and then, factor by factor, the value that
    covers most), deterministic, and checked by its own test."""
    names = list(factors)
    wanted = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    order = {name: position for position, name in enumerate(names)}
    rows: list[dict[str, int]] = []
    while wanted:
        (a, i), (b, j) = min(wanted, key=lambda pair: (order[pair[0][0]], pair[0][1], order[pair[1][0]], pair[1][1]))
        row = {a: i, b: j}
        for name in names:
            if name not in row:
                row[name] = max(
                    range(len(factors[name])),
                    key=lambda value: sum(_pair(order, name, value, k, v) in wanted for k, v in row.items()),
                )
        rows.append(row)
        wanted -= {_pair(order, x, row[x], y, row[y]) for x, y in itertools.combinations(names, 2)}
    return [{name: factors[name][row[name]] for name in names} for row in rows]


def _pair(order: Mapping[str, int], a: str, i: int, b: str, j: int) -> tuple[tuple[str, int], tuple[str, int]]:
    return ((a, i), (b, j)) if order[a] < order[b] else ((b, j), (a, i))
