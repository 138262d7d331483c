"""What the slots of the window pool hold, and in which of its pages each page has the window layers' KV. It finds a read of
KV that was given back, or that is another prefix's, in the step in which it happens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import WindowWrites, WorkerLimits
from jackfield_worker_simulated.errors import SimulationError, ensure
from jackfield_worker_simulated.rows import OpenRows


class WindowLedger:
    """tokens   what a token of the window layers sees, itself included"""

    def __init__(self, limits: WorkerLimits, tokens: int) -> None:
        self.tokens = tokens
        self._size = limits.page_size
        self._last = limits.window_slots // limits.page_size
        self._page_of = np.zeros(limits.total_slots // limits.page_size + 1, dtype=np.int32)
        self._content = np.zeros(limits.page_size + limits.window_slots, dtype=np.uint64)

    def write(self, writes: WindowWrites) -> None:
        """Apply changes of the map."""
        pages, to = writes.pages, writes.window_pages
        if not len(pages):
            return
        ensure(
            pages.dtype == to.dtype == np.int32 and pages.shape == to.shape, "changes of the window's map are broken"
        )
        ensure(
            bool((pages > 0).all() and (pages < len(self._page_of)).all()), "a page that is mapped is outside the pool"
        )
        ensure(bool((to >= 0).all() and (to <= self._last).all()), "a page of the window pool is outside it")
        ensure(len(np.unique(pages)) == len(pages), "a page is mapped twice in one batch")
        self._page_of[pages] = to
        held = self._page_of[self._page_of > 0]
        ensure(len(np.unique(held)) == len(held), "a page of the window pool is mapped to twice")

    def first_read(self, start: NDArray[np.int32]) -> NDArray[np.int32]:
        """First position that rows read whose new tokens begin at `start`."""
        first: NDArray[np.int32] = np.maximum(start - (self.tokens - 1), 0).astype(np.int32)
        return first

    def check(
        self, row: NDArray[np.intp], position: NDArray[np.intp], slots: NDArray[np.int32], rows: OpenRows
    ) -> None:
        """These positions of these rows, which lie in `slots`, are read."""
        at = self._at(slots)
        wrong = (at < self._size) | (self._content[at] != rows.prefix[row, position + 1])
        if wrong.any():
            i = int(wrong.argmax())
            holds = "nothing: it was given back" if at[i] < self._size else "another prefix"
            raise SimulationError(
                f"row {row[i]}, uid {rows.uid[row[i]]} reads token {position[i]} of the window layers from slot {slots[i]}, "
                f"which holds {holds}"
            )

    def compute(
        self, row: NDArray[np.intp], position: NDArray[np.intp], slots: NDArray[np.int32], rows: OpenRows
    ) -> None:
        """KV of these new tokens is written."""
        at = self._at(slots)
        lost = at < self._size
        if lost.any():
            i = int(lost.argmax())
            raise SimulationError(
                f"row {row[i]}, uid {rows.uid[row[i]]} writes token {position[i]} into slot {slots[i]}, which has no page in "
                "the window pool"
            )
        self._content[at] = rows.prefix[row, position + 1]

    def reset(self) -> None:
        self._content[:] = 0

    def _at(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        at: NDArray[np.int32] = self._page_of[slots // self._size] * np.int32(self._size) + slots % np.int32(self._size)
        return at
