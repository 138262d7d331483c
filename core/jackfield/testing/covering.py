"""Pairwise covering arrays: few rows in which every pair of values of every two factors occurs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Allowed = Callable[[Mapping[str, Any]], bool]


def pairwise(factors: Mapping[str, Sequence[Any]], allowed: Allowed | None = None) -> list[dict[str, Any]]:
    """Greedy (each row takes the pair that is oldest among the uncovered and then, factor by factor, the value that
    covers most, of several the one that was used least), deterministic, and checked by its own test.

    allowed: whether a row, or a part of one, may be; pairs that may not are left out, and no row contains one. It must forbid
    by pairs, and whatever begins well must have a way to end well: ValueError if a row has none."""
    names = list(factors)

    def fits(row: Mapping[str, int]) -> bool:
        return allowed is None or allowed({name: factors[name][i] for name, i in row.items()})

    wanted = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
        if fits({a: i, b: j})
    }
    order = {name: position for position, name in enumerate(names)}
    used = {name: [0] * len(factors[name]) for name in names}
    rows: list[dict[str, int]] = []
    while wanted:
        (a, i), (b, j) = min(wanted, key=lambda pair: (order[pair[0][0]], pair[0][1], order[pair[1][0]], pair[1][1]))
        row = {a: i, b: j}
        for name in names:
            if name not in row:
                row[name] = max(
                    (value for value in range(len(factors[name])) if fits({**row, name: value})),
                    key=lambda value: (
                        sum(_pair(order, name, value, k, v) in wanted for k, v in row.items()),
                        -used[name][value],
                    ),
                )
        rows.append(row)
        for name, i in row.items():
            used[name][i] += 1
        wanted -= {_pair(order, x, row[x], y, row[y]) for x, y in itertools.combinations(names, 2)}
    return [{name: factors[name][row[name]] for name in names} for row in rows]


def _pair(order: Mapping[str, int], a: str, i: int, b: str, j: int) -> tuple[tuple[str, int], tuple[str, int]]:
    return ((a, i), (b, j)) if order[a] < order[b] else ((b, j), (a, i))
