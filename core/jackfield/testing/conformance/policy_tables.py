"""Tables and views made up for schedule policies; a table notes which of its columns are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jackfield.config.errors import did_you_mean
from jackfield.hookspecs import PrefixForest, RequestTable, SchedulerView, StepRecord

COLUMNS: dict[str, type] = {
    name: {"uid": np.int64, "arrival": np.float64, "deadline": np.float64}.get(name, np.int32)
    for name, value in vars(RequestTable).items()
    if isinstance(value, property)
}
"""Column -> its dtype, read from the contract."""

LARGEST = int(np.iinfo(np.int32).max)


class MadeTable:
    """Random requests in arrival order; columns are read-only, as the core's.

    read    names of the columns that were looked at
    huge    numbers at the ends of what a request may carry
    """

    def __init__(self, count: int, seed: int, *, huge: bool = False) -> None:
        rng = np.random.default_rng([seed, count])
        columns: dict[str, NDArray[Any]] = {name: np.zeros(count, dtype=dtype) for name, dtype in COLUMNS.items()}
        columns["uid"] = np.sort(rng.choice(10 * count + 1, count, replace=False)).astype(np.int64) + 1
        columns["arrival"] = np.sort(rng.uniform(0, 50, count))
        for name in ("cached_tokens", "output_tokens", "retractions", "skips", "held_tokens"):
            columns[name] = rng.integers(0, 50, count).astype(np.int32)
        columns["prompt_tokens"] = columns["cached_tokens"] + rng.integers(1, 50, count).astype(np.int32)
        columns["computed"] = columns["cached_tokens"].copy()
        columns["max_new_tokens"] = columns["output_tokens"] + rng.integers(1, 50, count).astype(np.int32)
        columns["priority"] = rng.integers(-3, 4, count).astype(np.int32)
        columns["tenant"] = rng.choice(np.array([0, 1, 5, LARGEST], dtype=np.int32), count)
        columns["deadline"] = np.where(rng.random(count) < 0.5, np.inf, rng.uniform(0, 100, count))
        if huge:
            columns["priority"] = rng.choice(np.array([-LARGEST - 1, -1, 0, LARGEST], dtype=np.int32), count)
            columns["prompt_tokens"] = rng.choice(np.array([1, 10_000_000], dtype=np.int32), count)
            columns["cached_tokens"] = np.where(columns["prompt_tokens"] > 1, 9_999_999, 0).astype(np.int32)
            columns["max_new_tokens"] = rng.choice(np.array([1, LARGEST], dtype=np.int32), count)
            columns["output_tokens"] = np.zeros(count, dtype=np.int32)
            columns["uid"] = columns["uid"] + 2**60
            columns["deadline"] = rng.choice(np.array([-1e12, 0.0, 1e300, np.inf]), count)
            columns["tenant"] = rng.integers(0, LARGEST, count).astype(np.int32)
        for column in columns.values():
            column.flags.writeable = False
        self.read: set[str] = set()
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, name: str) -> Any:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"a RequestTable has no column {name!r}{did_you_mean(name, columns)}")
        self.read.add(name)
        return columns[name]

    def columns(self) -> dict[str, NDArray[Any]]:
        """All of them, unnoticed."""
        return self._columns


def made_view(
    count: int,
    seed: int,
    *,
    forest: bool = False,
    waiting: Any = None,
    running: Any = None,
    now: float = 60.0,
    free: int = 50,
    evictable: int = 10,
) -> SchedulerView:
    """The numbers of a step in which up to 8 run; with a prefix forest over `count` requests for a policy that needs it."""
    return SchedulerView(
        now=now,
        seed=seed * 7919 + 13,
        step=seed + 3,
        free=free,
        evictable=evictable,
        total=100,
        page_size=1,
        max_running=8,
        max_prefill=64,
        running=MadeTable(min(count, 8), seed + 1) if running is None else running,
        forest=_forest(count, seed) if forest else None,
        waiting=waiting,
    )


def _forest(count: int, seed: int) -> PrefixForest:
    words = np.random.default_rng(seed).integers(0, 3, (count, 4)).tolist()
    paths = [[tuple(word[: i + 1]) for i in range(word[0] + word[1])] for word in words]
    return PrefixForest.from_paths(paths, np.array([len(path) for path in paths], dtype=np.int32))


def made_record(
    step: int,
    uids: list[int],
    *,
    admitted: tuple[int, ...] = (),
    finished: tuple[int, ...] = (),
    retracted: tuple[int, ...] = (),
    aborted: tuple[int, ...] = (),
    tenants: list[int] | None = None,
) -> StepRecord:
    """A step in which each of `uids` advanced by one token, the first of them with its prompt. tenants: of each; None: three.

    Nobody advances who was not admitted in a record before or is in `admitted` of this one, or was there at `start`.
    """
    codes = np.array([uid % 3 for uid in uids] if tenants is None else tenants, dtype=np.int32)
    return StepRecord(
        step=step,
        started=float(step),
        ended=step + 0.5,
        uids=np.array(uids, dtype=np.int64),
        tokens=np.ones(len(uids), dtype=np.int32),
        admitted=admitted,
        finished=finished,
        retracted=retracted,
        aborted=aborted,
        prefills=min(1, len(uids)),
        tenants=codes,
        open_tenants=np.unique(codes),
    )
