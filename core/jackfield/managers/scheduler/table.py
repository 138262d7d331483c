"""Requests as columns. One table class whose row operations work on all columns at once, so that no column can get out of
step with another; and the read-only view of it that policies get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PUBLIC_COLUMNS: Mapping[str, type] = {
    "uid": np.int64,
    "arrival": np.float64,
    "prompt_tokens": np.int32,
    "computed": np.int32,
    "output_tokens": np.int32,
    "max_new_tokens": np.int32,
    "cached_tokens": np.int32,
    "priority": np.int32,
    "tenant": np.int32,
    "adapter": np.int32,
    "deadline": np.float64,
    "retractions": np.int32,
    "skips": np.int32,
    "held_tokens": np.int32,
}
"""The columns of `hookspecs.RequestTable`, described there."""

PRIVATE_COLUMNS: Mapping[str, type] = {
    "request": np.object_,  # the Request
    "row": np.int32,  # its row of the request-to-token table
    "sampled": np.int32,  # output tokens whose sampling is launched; output_tokens of them are committed
    "written": np.int32,  # tokens whose KV is committed to be written; computed of them are launched
    "allocated": np.int32,  # slots in its row, whole pages, the lease's included
    "floor": np.int32,  # with a window pool: the window layers' KV is there from this token on
    "goal": np.int32,  # tokens known at admission: the prompt, and the outputs of a request that was retracted
    "hinted": np.int64,  # waiting: the cache's change at which its `cached_tokens` was looked up; 0: never
    "started": np.float64,  # scheduler's clock at the first admission; infinity before it
    "last_token": np.int32,  # newest committed token
    "ignore_eos": np.bool_,
    "has_stop_ids": np.bool_,
    "wants_logprobs": np.bool_,
    "constrained": np.bool_,  # by a grammar
}
"""What the scheduler keeps beside them."""

COLUMNS: Mapping[str, type] = {**PUBLIC_COLUMNS, **PRIVATE_COLUMNS}


class ColumnTable:
    """Rows 0 .. len-1 in the order in which they were appended. `table["uid"]` is a live array of length len: valid until
    the next row operation, and writable.

    changes   counts row operations: what was computed of who is here holds until the next
    """

    def __init__(self, capacity: int = 16) -> None:
        self.changes = 0
        self._size = 0
        self._capacity = max(1, capacity)
        self._data: dict[str, NDArray[Any]] = {
            name: np.zeros(self._capacity, dtype=dtype) for name, dtype in COLUMNS.items()
        }
        self.view = TableView(self)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self._data[column][: self._size]

    def append(self, values: Mapping[str, Any]) -> int:
        """Add one row; every column that `values` leaves out is 0. Returns its number."""
        unknown = values.keys() - COLUMNS.keys()
        if unknown:
            raise KeyError(f"no columns named {sorted(unknown)}")
        self._reserve(self._size + 1)
        row = self._size
        for name, column in self._data.items():
            column[row] = values.get(name, 0)
        self._size += 1
        self.changes += 1
        return row

    def extend(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Add the rows that another table's `take` gave."""
        if columns.keys() != COLUMNS.keys():
            raise KeyError("rows must come with exactly the table's columns")
        lengths = {len(column) for column in columns.values()}
        if len(lengths) != 1:
            raise ValueError(f"columns of different lengths {sorted(lengths)}")
        (count,) = lengths
        self._reserve(self._size + count)
        for name, column in self._data.items():
            column[self._size : self._size + count] = columns[name]
        self._size += count
        self.changes += 1

    def take(self, rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        """Remove these rows and return them, in the order asked for; the others close up and keep their order."""
        taken = {name: column[: self._size][rows] for name, column in self._data.items()}
        self.drop(rows)
        return taken

    def drop(self, rows: NDArray[np.intp]) -> None:
        """Remove these rows; the others close up and keep their order."""
        keep = np.ones(self._size, dtype=np.bool_)
        keep[rows] = False
        left = int(np.count_nonzero(keep))
        for column in self._data.values():
            column[:left] = column[: self._size][keep]
        self._data["request"][left : self._size] = None  # an ended request must not live on in the unused part
        self._size = left
        self.changes += 1

    def _reserve(self, size: int) -> None:
        if size <= self._capacity:
            return
        self._capacity = max(size, 2 * self._capacity)
        for name, column in self._data.items():
            grown = np.zeros(self._capacity, dtype=column.dtype)
            grown[: self._size] = column[: self._size]
            self._data[name] = grown


def _column(name: str) -> property:
    def read(view: TableView) -> NDArray[Any]:
        column = view._table[name].view()
        column.flags.writeable = False
        return column

    return property(read)


class TableView:
    """`hookspecs.RequestTable` over a table: the public columns, read-only."""

    __slots__ = ("_table",)

    def __init__(self, table: ColumnTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    uid = _column("uid")
    arrival = _column("arrival")
    prompt_tokens = _column("prompt_tokens")
    computed = _column("computed")
    output_tokens = _column("output_tokens")
    max_new_tokens = _column("max_new_tokens")
    cached_tokens = _column("cached_tokens")
    priority = _column("priority")
    tenant = _column("tenant")
    adapter = _column("adapter")
    deadline = _column("deadline")
    retractions = _column("retractions")
    skips = _column("skips")
    held_tokens = _column("held_tokens")
