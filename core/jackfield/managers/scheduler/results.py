"""Applies a worker's result to the requests that still live: new tokens, who has finished, whose KV may be shared now.

Requests that ended between launch and commit are skipped, whatever the result holds for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import BatchFault, FaultScope, WorkerResult
from jackfield.ipc.messages import FinishReason, TokenLogprobs, TokenOutput
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.grammar.masks import Masker
from jackfield.managers.scheduler.hold_back import HoldBack
from jackfield.managers.scheduler.logprobs import BadLogprobs, StepLogprobs
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.pooled import BadPooled, PooledReader
from jackfield.managers.scheduler.release import Ending, Releaser
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.result_counts import BadWorkerResult, read_counts
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.observability.stages import RequestStage

log = logging.getLogger(__name__)

ROW_ERROR = "The model failed to compute this request."
"""What the client is told; the worker's own words go to the log."""


_FREE: tuple[bool, FinishReason | None] = (True, None)


_FIRST: NDArray[np.intp] = np.zeros(1, dtype=np.intp)
"""The place of a token that is its row's only one."""


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
        ledger: Ledger,
        masker: Masker,
    ) -> None:
        self._ledger = ledger
        self._masker = masker
        self._worker_plugin = config.worker_plugin
        self._pooled = None if config.pooling is None else PooledReader(config.pooling)
        self._vocab_size = config.vocab_size
        self._is_eos = np.zeros(config.vocab_size, dtype=np.bool_)
        self._is_eos[list(config.eos_token_ids)] = True
        self._running = running
        self._memory = memory
        self._hold_back = hold_back
        self._releaser = releaser
        self._outbox = outbox

    def apply(self, step: StepInFlight, result: WorkerResult, now: float) -> None:
        """Raises BadWorkerResult, BadPooled or BadLogprobs, which are booked as the worker's."""
        try:
            self._apply(step, result, now)
        except (BadWorkerResult, BadPooled, BadLogprobs) as error:
            self._ledger.record(self._worker_plugin, FaultScope.STOP, error)
            raise

    def _apply(self, step: StepInFlight, result: WorkerResult, now: float) -> None:
        batch, running = step.batch, self._running
        counts, failed = read_counts(step, result, self._vocab_size)
        if result.refused:
            self._ledger.record(self._worker_plugin, FaultScope.BATCH, BatchFault(result.refused))
        at, alive = batch.located(running)
        failures = bool(np.count_nonzero(failed))
        every = alive is None and not failures
        alive = np.ones(len(at), dtype=np.bool_) if alive is None else alive
        done = alive if every else alive & ~failed
        rows = at if every else at[done]
        # Earlier steps are committed, so that `written` is exact even where the launch knew an upper bound.
        running["written"][rows] += batch.new_tokens if every else batch.new_tokens[done]
        endings = []
        if failures:
            endings = [_failed(step.requests[i]) for i in np.flatnonzero(alive & failed).tolist()]
        logprobs = None
        wanting = running["wants_logprobs"][rows]
        if np.count_nonzero(wanting):
            wants = done.copy()
            wants[done] = wanting
            logprobs = StepLogprobs(step, result.logprobs, wants, counts)
            self._outbox.outputs += [
                TokenOutput(rid=request.rid, prompt_logprobs=entries) for request, entries in logprobs.prompts()
            ]
        endings += self._append(step, result, counts, at, done & step.sample, logprobs)
        if batch.prefills:
            endings += self._prefilled(step, result, at, done, {ending.request.uid for ending in endings}, now)
        if endings:
            self._releaser.release(endings, now)
        if self._memory.window is not None:
            at, still = batch.located(running)
            self._memory.window.slide(
                running, at if still is None else at[still], self._memory.rows, self._memory.slide
            )

    def _append(
        self,
        step: StepInFlight,
        result: WorkerResult,
        counts: NDArray[np.int32],
        at: NDArray[np.intp],
        new: NDArray[np.bool_],
        logprobs: StepLogprobs | None,
    ) -> list[Ending]:
        """The new tokens of the batch rows `new`, up to the one that ends the request; who ends by one of them."""
        running = self._running
        if np.count_nonzero(new) == len(new):
            rows, given, of_step = at, counts, step.requests
        else:
            rows, given, of_step = at[new], counts[new], step.requests[new]
        if not len(rows):
            return []
        requests: list[Request] = of_step.tolist()
        tokens = result.tokens
        owner, place = np.arange(len(rows)), _FIRST
        several = len(rows) != len(tokens)
        if several:  # only the tokens of `new` rows, or more than one of a row
            starts = result.starts[:-1][new]
            place = np.arange(int(given.sum())) - np.repeat(np.cumsum(given) - given, given)
            tokens = tokens[np.repeat(starts, given) + place]
            owner = np.repeat(owner, given)
        of = rows[owner] if several else rows
        ends = running["output_tokens"][of] + (place + 1) >= running["max_new_tokens"][of]
        stops = self._is_eos[tokens]
        stops &= ~running["ignore_eos"][of]
        look_up = running["has_stop_ids"][of]
        if np.count_nonzero(look_up):
            for i in np.flatnonzero(look_up).tolist():
                stops[i] |= int(tokens[i]) in requests[owner[i]].stop_ids
        first = last = owner
        kept = given
        if several:
            first = np.cumsum(given) - given
            # The first token that ends a request is its last; what the worker gave beyond it is surplus.
            kept = np.minimum.reduceat(np.where(stops | ends, place + 1, given[owner]), first).astype(np.int32)
            last = first + kept - 1
        verdicts: dict[int, tuple[bool, FinishReason | None]] = {}
        if np.count_nonzero(bound := running["constrained"][rows]):
            verdicts = self._follow(requests, tokens, last, stops, np.flatnonzero(bound).tolist())
        running["last_token"][rows] = tokens[last]
        running["output_tokens"][rows] += kept
        if step.batch.most is not None:
            running["written"][rows] += kept - 1
            missing = step.batch.most[new] - kept
            running["computed"][rows] -= missing
            running["sampled"][rows] -= missing
        entries: list[TokenLogprobs | None] | None = None
        if logprobs is not None:
            rows_of = np.flatnonzero(new).tolist()
            entries = [logprobs.outputs(i, count) for i, count in zip(rows_of, kept.tolist(), strict=True)]
        return self._emit(
            requests, tokens.tolist(), first.tolist(), last.tolist(), stops[last], ends[last], entries, verdicts
        )

    def _follow(
        self,
        requests: list[Request],
        tokens: NDArray[np.int32],
        last: NDArray[np.intp],
        stops: NDArray[np.bool_],
        bound: list[int],
    ) -> dict[int, tuple[bool, FinishReason | None]]:
        """The grammars of those of `requests` that are `bound` go on by their one new token. Index -> (whether the token belongs
        to the answer, how the request ends by it). An end token under a mask ends the request, and is marked in `stops`."""
        verdicts = {}
        for i in bound:
            request, token = requests[i], int(tokens[last[i]])
            constraint = request.constraint
            if constraint is not None and constraint.over is None:
                stops[last[i]] |= constraint.bound and bool(self._is_eos[token])
                if stops[last[i]]:
                    continue
            verdicts[i] = self._masker.commit(request, token)
        return verdicts

    def _emit(
        self,
        requests: list[Request],
        tokens: list[int],
        first: list[int],
        last: list[int],
        stops: NDArray[np.bool_],
        ends: NDArray[np.bool_],
        logprobs: list[TokenLogprobs | None] | None,
        verdicts: Mapping[int, tuple[bool, FinishReason | None]],
    ) -> list[Ending]:
        """Hand out tokens[first:last + 1] of each request, with its entries where anybody wants them. verdicts: of `_follow`."""
        endings: list[Ending] = []
        outbox = self._outbox
        with_entries = repeat(None) if logprobs is None else logprobs
        for i, (request, begin, end, stop, full, entries) in enumerate(
            zip(requests, first, last, stops.tolist(), ends.tolist(), with_entries, strict=False)
        ):
            ids = tokens[begin : end + 1]
            belongs, over = verdicts.get(i, _FREE)
            if not belongs:
                ids, entries = [], None
            request.output_ids += ids
            if over is not None:
                error = over.type == "abort"
                endings.append(Ending(request=request, finish=over, ids=ids, logprobs=entries, insert=not error))
            elif stop:
                finish = FinishReason(type="stop", matched=ids[-1])
                endings.append(Ending(request=request, finish=finish, ids=ids, logprobs=entries))
            elif full:
                finish = FinishReason(type="length", length=len(request.output_ids))
                endings.append(Ending(request=request, finish=finish, ids=ids, logprobs=entries))
            else:
                outbox.grew(request, ids, entries)
        return endings

    def _prefilled(
        self,
        step: StepInFlight,
        result: WorkerResult,
        at: NDArray[np.intp],
        done: NDArray[np.bool_],
        ended: set[int],
        now: float,
    ) -> list[Ending]:
        """After tokens known at admission were computed: share them, and see who has all of them."""
        running, endings = self._running, []
        for i in np.flatnonzero(done[: step.batch.prefills]).tolist():
            request: Request = step.requests[i]
            complete = bool(running["written"][at[i]] >= running["goal"][at[i]])
            if complete:
                self._hold_back.forget(request)
                request.times.enter(RequestStage.DECODE, now)
            if request.uid in ended:
                continue  # its KV is offered once, by the release
            if complete and self._pooled is not None:
                endings.append(self._pooled_ending(request, self._pooled.read(result, i)))
                continue
            if complete and request.max_new_tokens == 0:
                endings.append(Ending(request=request, finish=FinishReason(type="length", length=0)))
                continue
            taken = self._share(request, int(at[i]))
            if not complete:
                self._hold_back.watch(request, taken)
        return endings

    def _pooled_ending(self, request: Request, pooled: bytes | None) -> Ending:
        if pooled is None:
            log.error("request %s: what the worker gave of its prompt is not finite", request.rid)
            return _failed(request)
        return Ending(request=request, finish=FinishReason(type="stop"), insert=not request.whole, pooled=pooled)

    def _share(self, request: Request, at: int) -> int:
        """Offer the request's written KV to the cache while it goes on. Returns what the cache now holds of it."""
        running, lease = self._running, request.lease
        if request.state is not RequestState.RUNNING or lease is None:
            raise RuntimeError(f"request {request.rid} is not running")
        before, written = lease.length, int(running["written"][at])
        if written // self._memory.page_size * self._memory.page_size == before:
            return before
        key = request.key(written)
        floor = int(running["floor"][at])
        committed = self._memory.commit(lease, key, request.row, final=False, floor=floor)
        running["held_tokens"][at] -= committed.length - before
        self._hold_back.learned(written, committed.length)
        return committed.length


def _failed(request: Request) -> Ending:
    """The end of a request whose row the worker could not compute."""
    return Ending(request=request, finish=FinishReason(type="abort", message=ROW_ERROR, status_code=500), insert=False)
