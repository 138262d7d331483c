"""Applies a worker's result to the requests that still live: new tokens, who has finished, whose KV may be shared now.

Requests that ended between launch and commit are skipped, whatever the result holds for them.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import WorkerResult
from jackfield.ipc.messages import FinishReason, TokenOutput
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.release import Ending, Releaser
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.running import RunningTable
from jackfield.observability.stages import RequestStage

log = logging.getLogger(__name__)

ROW_ERROR = "The model failed to compute this request."
"""What the client is told; the worker's own words go to the log."""


class BadWorkerResult(Exception):
    """A result that does not match its batch: the worker and the scheduler disagree, the replica cannot go on."""


class ResultApplier:
    def __init__(
        self,
        config: SchedulerConfig,
        *,
        running: RunningTable,
        memory: KVMemory,
        hold_back: HoldBack,
        releaser: Releaser,
        outbox: Outbox,
    ) -> None:
        self._vocab_size = config.vocab_size
        self._is_eos = np.zeros(config.vocab_size, dtype=np.bool_)
        self._is_eos[list(config.eos_token_ids)] = True
        self._running = running
        self._memory = memory
        self._hold_back = hold_back
        self._releaser = releaser
        self._outbox = outbox

    def apply(self, step: StepInFlight, result: WorkerResult, now: float) -> None:
        batch, running = step.batch, self._running
        tokens, failed = self._read(step, result)
        at, alive = running.locate(batch.rows, batch.uids)
        done = alive & ~failed
        rows = at[done]
        running["written"][rows] = (step.start + batch.new_tokens)[done]
        endings = [
            Ending(
                request=step.requests[i],
                finish=FinishReason(type="abort", message=ROW_ERROR, status_code=500),
                insert=False,
            )
            for i in np.flatnonzero(alive & failed).tolist()
        ]
        endings += self._append(step, tokens, at, done & step.sample)
        if batch.prefills:
            endings += self._prefilled(step, at, done, {ending.request.uid for ending in endings}, now)
        if endings:
            self._releaser.release(endings, now)

    def _read(self, step: StepInFlight, result: WorkerResult) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """One token a row (-1 where none was sampled), and the rows that failed [n]."""
        n = len(step.batch.rows)
        failed = np.zeros(n, dtype=np.bool_)
        for i, message in result.errors.items():
            if not 0 <= i < n:
                raise BadWorkerResult(f"an error for row {i} of a batch of {n}: {message}")
            failed[i] = True
            log.error("request %s failed in the worker: %s", step.requests[i].rid, message)
        counts = np.diff(result.starts)
        if len(counts) != n or (n and result.starts[-1] != len(result.tokens)):
            raise BadWorkerResult(f"{len(counts)} rows with {len(result.tokens)} tokens came back for a batch of {n}")
        wrong = (counts != step.sample) & ~failed
        if wrong.any() or (counts < 0).any():
            i = int(np.flatnonzero(wrong | (counts < 0))[0])
            raise BadWorkerResult(
                f"{counts[i]} tokens came back for batch row {i}, where {int(step.sample[i])} was asked"
            )
        tokens = np.full(n, -1, dtype=np.int32)
        one = (counts == 1) & step.sample
        tokens[one] = result.tokens[result.starts[:-1][one]]
        outside = one & ~failed & ((tokens < 0) | (tokens >= self._vocab_size))
        for i in np.flatnonzero(outside).tolist():
            failed[i] = True
            log.error("request %s: the worker sampled %d, outside the vocabulary", step.requests[i].rid, tokens[i])
        return tokens, failed

    def _append(
        self, step: StepInFlight, tokens: NDArray[np.int32], at: NDArray[np.intp], new: NDArray[np.bool_]
    ) -> list[Ending]:
        """The new tokens of the batch rows `new`; who ends by one of them."""
        running = self._running
        rows, drawn = at[new], tokens[new]
        running["last_token"][rows] = drawn
        running["output_tokens"][rows] += 1
        ends = running["output_tokens"][rows] >= running["max_new_tokens"][rows]
        stops = self._is_eos[drawn] & ~running["ignore_eos"][rows]
        look_up = running["has_stop_ids"][rows]
        requests: list[Request] = step.requests[new].tolist()
        ids: list[int] = drawn.tolist()
        if look_up.any():
            for i in np.flatnonzero(look_up).tolist():
                stops[i] |= ids[i] in requests[i].stop_ids
        endings: list[Ending] = []
        outputs = self._outbox.outputs
        for request, token, stop, end in zip(requests, ids, stops.tolist(), ends.tolist(), strict=True):
            request.output_ids.append(token)
            if stop:
                endings.append(Ending(request=request, finish=FinishReason(type="stop", matched=token), ids=[token]))
            elif end:
                finish = FinishReason(type="length", length=len(request.output_ids))
                endings.append(Ending(request=request, finish=finish, ids=[token]))
            else:
                outputs.append(TokenOutput(rid=request.rid, ids=[token]))
        return endings

    def _prefilled(
        self, step: StepInFlight, at: NDArray[np.intp], done: NDArray[np.bool_], ended: set[int], now: float
    ) -> list[Ending]:
        """After prompt tokens were computed: share them, and see whose prompt is complete."""
        running, endings = self._running, []
        for i in np.flatnonzero(done[: step.batch.prefills]).tolist():
            request: Request = step.requests[i]
            complete = bool(running["written"][at[i]] >= len(request.prompt))
            if complete:
                self._hold_back.forget(request)
                request.times.enter(RequestStage.DECODE, now)
            if request.uid in ended:
                continue  # its KV is offered once, by the release
            if complete and request.max_new_tokens == 0:
                endings.append(Ending(request=request, finish=FinishReason(type="length", length=0)))
                continue
            taken = self._share(request, int(at[i]))
            if not complete:
                self._hold_back.watch(request, taken)
        return endings

    def _share(self, request: Request, at: int) -> int:
        """Offer the request's written KV to the cache while it goes on. Returns what the cache now holds of it."""
        running, lease = self._running, request.lease
        if request.state is not RequestState.RUNNING or lease is None:
            raise RuntimeError(f"request {request.rid} is not running")
        before, written = lease.length, int(running["written"][at])
        if written // self._memory.page_size * self._memory.page_size == before:
            return before
        key = request.key(written)
        committed = self._memory.commit(lease, key, request.row, final=False)
        running["held_tokens"][at] -= committed.length - before
        self._hold_back.learned(written, committed.length)
        return committed.length
