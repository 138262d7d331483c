"""The simulated worker: applies a batch's deltas, checks them, books the step's time and draws its tokens."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    PendingResult,
    TokenMasks,
    WorkerContext,
    WorkerLimits,
    WorkerOp,
    WorkerReply,
    WorkerResult,
)
from jackfield_worker_simulated.batch_checks import check_batch
from jackfield_worker_simulated.cost import step_seconds
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.hashing import mix
from jackfield_worker_simulated.held_ends import HeldEnds
from jackfield_worker_simulated.kv_ledger import KVLedger
from jackfield_worker_simulated.logprobs import LogprobRows, StepEntries
from jackfield_worker_simulated.masks import obey
from jackfield_worker_simulated.mover import SimulatedMover
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.rows import NOT_STARTED, OpenRows
from jackfield_worker_simulated.script import Script, make_script
from jackfield_worker_simulated.timeline import NoTime, Timeline, VirtualTime, WallTime
from jackfield_worker_simulated.window_ledger import WindowLedger

DEFAULT_TOTAL_TOKENS = 65536


class SimulatedLaunch(Launched):
    """rows, uids: whom to sample for [m]; at: tokens known then; starts: the result's `starts` [n + 1]; end: of the step;
    entries: log-probabilities that are wanted."""

    __slots__ = ("at", "end", "entries", "rows", "starts", "step", "uids")

    def __init__(
        self,
        *,
        step: int,
        rows: NDArray[np.int32],
        uids: NDArray[np.int64],
        at: NDArray[np.int32],
        starts: NDArray[np.int32],
        end: float,
        entries: StepEntries | None,
    ) -> None:
        self.entries = entries
        self.step = step
        self.rows = rows
        self.uids = uids
        self.at = at
        self.starts = starts
        self.end = end


class SimulatedResult:
    """`hookspecs.PendingResult`: what was drawn, available when the step's time has passed."""

    def __init__(self, timeline: Timeline, end: float, result: WorkerResult) -> None:
        self._timeline = timeline
        self._end = end
        self._result = result

    def ready(self) -> bool:
        return self._timeline.passed(self._end)

    def result(self, timeout: float | None = None) -> WorkerResult:
        self._timeline.wait(self._end, timeout)
        return self._result


class SimulatedWorker(ModelWorker):
    """Raises SimulationError from `launch` and `sample` for everything that a real worker would get wrong in silence."""

    def __init__(self, context: WorkerContext, options: SimulatedOptions) -> None:
        self.limits = _limits(context, options)
        self._options = options
        self._timeline = _timeline(context, options)
        self._copies = _timeline(context, options)
        self._script: Script | None = None
        if options.script is not None:
            self._script = make_script(
                options.script, encode=context.encode, eos_ids=context.eos_ids, vocab_size=context.vocab_size
            )
        # End tokens are never drawn: without a script the length of an answer is the request's own limit.
        ids = np.arange(context.vocab_size, dtype=np.int32)
        drawn = np.setdiff1d(ids, np.array(context.eos_ids, dtype=np.int32))
        self._drawn = drawn if len(drawn) else ids
        self._held = HeldEnds(self._drawn)
        self._rows = OpenRows(self.limits)
        self._logprobs = LogprobRows(context.vocab_size)
        self._kv = KVLedger(self.limits) if options.verify != "off" else None
        self._window: WindowLedger | None = None
        if self.limits.window is not None and options.verify != "off":
            self._window = WindowLedger(self.limits, self.limits.window)
        self._prompt_tokens: dict[
            int, int
        ] = {}  # uid -> length, kept only for a script: a retraction reopens with outputs
        self._unsampled: deque[SimulatedLaunch] = deque()
        self._last_step = -1
        self._closed = False

    def launch(self, batch: ModelWorkerBatch) -> Launched:
        if self._closed:
            raise SimulationError("launch after close")
        check_batch(batch, self.limits)
        if batch.step <= self._last_step:
            raise SimulationError(f"step {batch.step} is launched after step {self._last_step}")
        self._last_step = batch.step
        self._apply_deltas(batch)
        rows, new_tokens = batch.rows, batch.new_tokens
        shut = self._rows.closed(rows)
        if shut.any():
            raise SimulationError(f"step {batch.step}: row {rows[shut.argmax()]} is in the batch and is not open")
        start = self._rows.start(batch)
        self._rows.check_tokens(batch, start)
        if self._kv is not None:
            check = start if self._options.verify == "all" else start * (self._rows.computed[rows] == NOT_STARTED)
            self._kv.check_prefix(rows, check.astype(np.int32), self._rows)
            self._kv.compute(rows, start, new_tokens, self._rows)
            if self._window is not None:
                first = self._window.first_read(start)
                self._window.check(*self._kv.slots_of(rows, first, start - first), self._rows)
                self._window.compute(*self._kv.slots_of(rows, start, new_tokens), self._rows)
        self._rows.computed[rows] = start + new_tokens
        sampled = rows[batch.sample]
        launched = SimulatedLaunch(
            step=batch.step,
            rows=sampled,
            uids=self._rows.uid[sampled],
            at=self._rows.known[sampled],
            starts=np.concatenate([[0], np.cumsum(batch.sample)]).astype(np.int32),
            end=self._timeline.book(step_seconds(self._options, new_tokens, start)),
            entries=self._logprobs.step(batch, start, self._rows),
        )
        self._unsampled.append(launched)
        return launched

    def sample(self, launched: Launched, masks: TokenMasks | None = None) -> PendingResult:
        if not isinstance(launched, SimulatedLaunch) or launched not in self._unsampled:
            raise SimulationError("a step is sampled twice, or it is not one of this worker")
        if launched is not self._unsampled[0]:
            raise SimulationError(f"step {launched.step} is sampled before step {self._unsampled[0].step}")
        self._unsampled.popleft()
        rows, at = launched.rows, launched.at
        # A row that was closed, or given to another request, since the launch still gets its token; it just goes nowhere.
        alive = self._rows.uid[rows] == launched.uids
        tokens = self._draw(launched, alive)
        failed = self._held.replace(tokens, rows, launched.uids, at)
        if masks is not None:
            obey(masks, tokens, rows, at, self.limits.vocab_size)
        if (self._rows.known[rows[alive]] != at[alive]).any():
            raise SimulationError(f"step {launched.step}: a row was sampled for again before its step was sampled")
        self._rows.append(rows[alive], tokens[alive])
        logprobs = None if launched.entries is None else launched.entries.result(tokens, launched.starts)
        sampled = np.flatnonzero(np.diff(launched.starts))
        errors = {int(sampled[i]): why for i, why in failed.items()}
        result = WorkerResult(tokens=tokens, starts=launched.starts, errors=errors, logprobs=logprobs)
        return SimulatedResult(self._timeline, launched.end, result)

    def mover(self) -> SimulatedMover:
        return SimulatedMover(self._kv, self._copies, self._options.copy_us_per_token / 1e6)

    def control(self, op: WorkerOp) -> WorkerReply:
        """`reset`: forget the slots' contents; refused while rows are open or steps in flight."""
        if op.name != "reset":
            return super().control(op)
        if self._unsampled or self.open_rows:
            return WorkerReply(
                ok=False, message=f"{self.open_rows} rows are open, {len(self._unsampled)} steps in flight"
            )
        if self._kv is not None:
            self._kv.reset()
        if self._window is not None:
            self._window.reset()
        return WorkerReply(ok=True)

    def close(self) -> None:
        self._closed = True

    @property
    def open_rows(self) -> int:
        """Rows that were opened and not closed yet."""
        return self._rows.open_count()

    def _apply_deltas(self, batch: ModelWorkerBatch) -> None:
        self._rows.close(batch.closed)
        self._held.close(batch.closed)
        if self._kv is not None:
            self._kv.close(batch.closed)
        self._logprobs.apply(batch.closed, batch.opened)
        for opened in batch.opened:
            self._rows.open(opened)
            self._held.open(opened)
            if self._script is not None:
                self._prompt_tokens.setdefault(opened.uid, len(opened.history))
        if self._kv is not None:
            self._kv.write(batch.writes, self._rows)
        if self._window is not None:
            self._window.write(batch.window)

    def _draw(self, launched: SimulatedLaunch, alive: NDArray[np.bool_]) -> NDArray[np.int32]:
        """One token for each sampled row, int32 [m]; the first allowed id where the request has gone."""
        if self._script is not None:
            drawn = [
                self._script.token(uid, at - self._prompt_tokens[uid])
                for uid, at in zip(launched.uids.tolist(), launched.at.tolist(), strict=True)
            ]
            return np.array(drawn, dtype=np.int32)
        hashes = self._rows.prefix[launched.rows, launched.at] ^ self._rows.noise[launched.rows]
        picks = mix(hashes) % np.uint64(len(self._drawn))
        return np.where(alive, self._drawn[picks.astype(np.intp)], self._drawn[0]).astype(np.int32)


def _limits(context: WorkerContext, options: SimulatedOptions) -> WorkerLimits:
    page = context.page_size
    wanted = DEFAULT_TOTAL_TOKENS if context.max_total_tokens is None else context.max_total_tokens
    total = wanted // page * page
    if total < page:
        raise ValueError(f"max_total_tokens is {wanted}, less than one page of {page}")
    window = options.window if context.window_pool else None
    slots = 0 if window is None else total if options.window_tokens is None else options.window_tokens // page * page
    if not 0 <= slots <= total:
        raise ValueError(f"option window_tokens: {options.window_tokens}, and the whole pool has {total} slots")
    return WorkerLimits(
        max_rows=context.max_running + 1,
        max_context=context.max_context,
        total_slots=total,
        page_size=page,
        vocab_size=context.vocab_size,
        max_tokens=context.max_tokens,
        window=window,
        window_slots=slots,
    )


def _timeline(context: WorkerContext, options: SimulatedOptions) -> Timeline:
    if context.clock is not None:
        if options.realtime:
            raise ValueError("option realtime: this run has a virtual clock; wall time cannot pass on it")
        return VirtualTime(context.clock)
    return WallTime() if options.realtime else NoTime()
