"""A decided step (`ScheduleBatch`, the scheduling view) and its conversion to what the worker gets (`ModelWorkerBatch`).

The one place where the conversion is written. It gathers from the running table's columns; only prompts that are being
prefilled are touched one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Launched, ModelWorkerBatch, PendingResult, RowOpen, WindowWrites, WorkerResult
from jackfield.hookspecs.common import no_slots
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.window import Window
from jackfield.mem_cache.req_to_token import ReqToTokenPool

NO_WINDOW_WRITES = WindowWrites()

_Array = TypeVar("_Array", bound=NDArray[Any])


def read_only(array: _Array) -> _Array:
    view = array.view()
    view.setflags(write=False)
    return view


@dataclass(kw_only=True)
class ScheduleBatch:
    """Requests of one step, prefills before decodes; row numbers of the running table are not kept, because they change.

    rows, uids    who [n]
    new_tokens    how many tokens each advances [n]
    prefills      how many of them, at the front, compute prompt tokens
    admitted      uids that got their row in this step
    most          most tokens that each row may give [n]; None: one
    wait_for      tickets of copies that the worker must wait for
    retracted     uids that lost theirs since the step before, for want of memory or for a more urgent request
    epoch         of the stack whose policy decided it
    at            where its requests stand in the running table [n], while that has `changes`
    """

    step: int
    rows: NDArray[np.int32]
    uids: NDArray[np.int64]
    new_tokens: NDArray[np.int32]
    prefills: int
    admitted: tuple[int, ...] = ()
    most: NDArray[np.int32] | None = None
    wait_for: tuple[int, ...] = ()
    retracted: tuple[int, ...] = ()
    epoch: int = 0
    at: NDArray[np.intp] | None = None
    changes: int = -1
    _shown: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    def located(self, running: RunningTable) -> tuple[NDArray[np.intp], NDArray[np.bool_] | None]:
        """Rows of the running table, and which of them still hold the batch's requests [n each]; None: all do."""
        if self.at is not None and self.changes == running.changes:
            return self.at, None
        at, alive = running.locate(self.rows, self.uids)
        return at, None if np.count_nonzero(alive) == len(alive) else alive

    def shown(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """`uids` and `new_tokens` as plugins may see them: these are the scheduler's own arrays, from which it goes on."""
        if self._shown is None:
            self.uids.setflags(write=False)  # nobody writes them; the others go to the worker, which may
            self._shown = self.uids, read_only(self.new_tokens)
        return self._shown

    def only(self, keep: NDArray[np.bool_]) -> ScheduleBatch:
        """The same step without the others [n]."""
        return ScheduleBatch(
            step=self.step,
            rows=self.rows[keep],
            uids=self.uids[keep],
            new_tokens=self.new_tokens[keep],
            prefills=int(np.count_nonzero(keep[: self.prefills])),
            admitted=self.admitted,
            most=None if self.most is None else self.most[keep],
            wait_for=self.wait_for,
            retracted=self.retracted,
            epoch=self.epoch,
        )


@dataclass(kw_only=True)
class StepInFlight:
    """A launched step: what the commit needs to know of the launch. `hookspecs.InFlight` for the loop.

    launched, pending   None if every request of the batch had ended before the launch: nothing was sent
    start               tokens computed before it [n]; an upper bound where a step before it may have given fewer tokens
    sample              whether each row is sampled [n]
    tenants             of the requests [n]; None if nobody wanted to know
    deferred            see `hookspecs.InFlight`
    constrained         whether each sampled row is bound by a grammar [n]; None: none is
    """

    batch: ScheduleBatch
    started: float
    launched: Launched | None
    start: NDArray[np.int32]
    sample: NDArray[np.bool_]
    requests: NDArray[np.object_]
    tenants: NDArray[np.int32] | None = None
    pending: PendingResult | None = None
    result: WorkerResult | None = None
    deferred: bool = False
    constrained: NDArray[np.bool_] | None = None

    def fetch(self, timeout: float | None) -> WorkerResult:
        """The worker's result, asked for once. Raises TimeoutError, or the worker's own failure."""
        if self.result is None:
            if self.pending is None:
                raise RuntimeError(f"step {self.batch.step} has no result: it was not sampled")
            self.result = self.pending.result(timeout)
        return self.result

    def ready(self) -> bool:
        if self.launched is None or self.result is not None:
            return True
        return self.pending is not None and self.pending.ready()


@dataclass
class RowDeltas:
    """Rows that began and ended since the last launch; the worker is told with the next one.

    Closed rows are applied before opened ones, so a row may be in both.
    """

    _opened: dict[int, RowOpen] = field(default_factory=dict)
    _closed: list[int] = field(default_factory=list)

    def open(self, opened: RowOpen) -> None:
        self._opened[opened.row] = opened

    def close(self, row: int) -> None:
        """The row's request ended. One that the worker never heard of is simply not told."""
        if self._opened.pop(row, None) is None:
            self._closed.append(row)

    def take(self) -> tuple[tuple[RowOpen, ...], NDArray[np.int32]]:
        if not self._opened and not self._closed:
            return (), no_slots()
        opened, closed = tuple(self._opened.values()), np.array(self._closed, dtype=np.int32)
        self._opened = {}
        self._closed = []
        return opened, closed


def book_launch(running: RunningTable, at: NDArray[np.intp], plain: ModelWorkerBatch) -> None:
    """The launched tokens count as computed and sampled: the most that may come, which the commit corrects."""
    if plain.most is None:
        running["computed"][at] += plain.new_tokens
        running["sampled"][at] += plain.sample
    else:
        given = np.where(plain.sample, plain.most, 0)
        running["computed"][at] += plain.new_tokens + np.maximum(given - 1, 0)
        running["sampled"][at] += given


def to_worker_batch(
    batch: ScheduleBatch,
    running: RunningTable,
    at: NDArray[np.intp],
    deltas: RowDeltas,
    pool: ReqToTokenPool,
    window: Window | None = None,
    *,
    pools: bool = False,
) -> ModelWorkerBatch:
    """The plain data of a batch whose requests, all alive, stand at rows `at` [n] of the running table. pools: what the model
    gives of their prompts is wanted, and no tokens."""
    computed = running["computed"][at]
    sampled, outputs = running["sampled"][at], running["output_tokens"][at]
    known = running["prompt_tokens"][at] + sampled
    last = computed + batch.new_tokens == known
    relay = last & (sampled > outputs)
    sample = last & (running["max_new_tokens"][at] > 0)
    decode_ids = running["last_token"][at]
    decode_ids[relay] = 0
    decode_ids = decode_ids[batch.prefills :]
    if batch.prefills:
        parts = [
            _tokens(request, start, count)
            for request, start, count in zip(
                running["request"][at[: batch.prefills]].tolist(),
                computed[: batch.prefills].tolist(),
                batch.new_tokens[: batch.prefills].tolist(),
                strict=True,
            )
        ]
        ids = np.concatenate([*parts, decode_ids])
    else:
        ids = decode_ids
    opened, closed = deltas.take()
    return ModelWorkerBatch(
        step=batch.step,
        rows=batch.rows,
        new_tokens=batch.new_tokens,
        computed=computed,
        token_ids=ids,
        relay=relay,
        sample=sample,
        opened=opened,
        closed=closed,
        writes=pool.take_writes(),
        exact=batch.most is None or not relay.any(),
        wait_for=batch.wait_for,
        most=batch.most,
        window=NO_WINDOW_WRITES if window is None else window.pool.take_writes(),
        pool=last if pools else None,
    )


def _tokens(request: Request, start: int, count: int) -> NDArray[np.int32]:
    if start + count <= len(request.prompt):
        return request.prompt[start : start + count]
    tokens = request.known_tokens(start + count)[start:]
    # A token that is still on the device has no number here; `relay` says so and a placeholder stands for it.
    return np.concatenate([tokens, np.zeros(count - len(tokens), dtype=np.int32)])
