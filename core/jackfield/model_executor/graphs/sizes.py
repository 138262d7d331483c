"""For which padded batch sizes decode steps are recorded."""

from __future__ import annotations

from collections.abc import Sequence

MOST_ROWS = 256
"""Largest padded batch where nobody names one: each recording costs start-up time and some memory, and what a step of many rows
computes takes longer than the calls that a replay saves."""


def padded_sizes(wanted: Sequence[int] | None, most: int | None, max_running: int) -> tuple[int, ...]:
    """Ascending and distinct. wanted: as named, those beyond `max_running` left out; None: 1, 2, 4 and every eighth up to `most`
    (None: 256) or `max_running`, whichever is less, and that number itself."""
    if wanted is not None:
        return tuple(sorted({size for size in wanted if size <= max_running}))
    largest = min(MOST_ROWS if most is None else most, max_running)
    steps = (1, 2, 4, *range(8, largest, 8), largest)
    return tuple(sorted({size for size in steps if 1 <= size <= largest}))


def padded(rows: int, sizes: Sequence[int]) -> int | None:
    """The least of the ascending sizes that holds so many rows; None: there is none."""
    return next((size for size in sizes if size >= rows), None)
