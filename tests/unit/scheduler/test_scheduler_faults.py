"""Faults of policy, cache and worker: how far each of them reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    CacheKey,
    Chosen,
    Committed,
    FaultScope,
    Freed,
    Launched,
    Lease,
    ModelWorkerBatch,
    PendingResult,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepRecord,
    WorkerLimits,
    WorkerResult,
)
from jackfield.ipc.messages import WhyRequest
from jackfield.managers.scheduler.cache_answers import BadCacheAnswer
from jackfield.managers.scheduler.results import ROW_ERROR, BadWorkerResult
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.page_cache import PageCache
from jackfield.testing.scheduler_fakes import FakePending, FakeWorker
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness


class Books:
    def __init__(self) -> None:
        self.faults: list[tuple[str, FaultScope, str]] = []

    def record(self, plugin: str, scope: FaultScope, error: BaseException) -> None:
        self.faults.append((plugin, scope, str(error)))


class Broken(SchedulePolicy):
    """Answers `answer` where asked for `where`; raises it if it is an exception."""

    def __init__(self, where: str, answer: Any) -> None:
        self.where, self.answer = where, answer

    def _or(self, where: str, good: Any) -> Any:
        if where != self.where:
            return good
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def budget(self, view: SchedulerView) -> StepBudget:
        return self._or("budget", StepBudget())  # type: ignore[no-any-return]

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        return self._or("order", None)  # type: ignore[no-any-return]

    def take(self, row: int, most: int, waiting: RequestTable, chosen: Chosen, view: SchedulerView) -> int:
        return self._or("take", most)  # type: ignore[no-any-return]

    def observe(self, record: StepRecord) -> None:
        self._or("observe", None)


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("budget", ZeroDivisionError("no")),
        ("budget", None),
        ("budget", StepBudget(prefill_tokens=0)),
        ("budget", StepBudget(prefill_tokens=1.5)),  # type: ignore[arg-type]
        ("budget", StepBudget(candidates=2.5)),  # type: ignore[arg-type]
        ("budget", StepBudget(candidates=float("nan"))),  # type: ignore[arg-type]
        ("budget", StepBudget(partial_prefills=0.5)),  # type: ignore[arg-type]
        ("budget", StepBudget(decode="first")),  # type: ignore[arg-type]
        ("order", KeyError("no")),
        ("order", np.array([0, 0])),
        ("order", np.array([-1])),
        ("order", np.array([99])),
        ("order", np.array([0.5])),
        ("order", np.array([[0]])),
        ("order", "first"),
        ("take", RuntimeError("no")),
        ("take", 10_000),
        ("take", -5),
        ("take", 1.5),
        ("take", None),
        ("observe", RuntimeError("no")),
    ],
)
def test_a_policys_fault_degrades_to_arrival_order_and_is_booked(where: str, answer: Any) -> None:
    books = Books()
    run = SchedulerHarness(policy=Broken(where, answer), ledger=books, policy_plugin="schedule_policy.broken")
    rids = [run.submit([i, i], max_new_tokens=2) for i in range(3)]
    run.run()
    for rid in rids:
        assert run.answers[rid].ids == run.expected(rid, 2)
    assert [opened.uid for batch in run.worker.batches for opened in batch.opened] == [1, 2, 3]
    assert books.faults
    assert {(plugin, scope) for plugin, scope, _ in books.faults} == {("schedule_policy.broken", FaultScope.DEGRADE)}


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(("error", "told"), [(Speechless(), "cannot be read"), (KeyError("\ud800"), "KeyError")])
def test_a_policys_error_that_cannot_be_told_as_it_is_degrades_like_any(error: Exception, told: str) -> None:
    run = SchedulerHarness(policy=Broken("order", error), ledger=FaultLedger(limit=100))
    rid = run.submit([1, 2], max_new_tokens=2)
    run.inbox.send(WhyRequest(control_id=1, name=rid))
    run.run()
    run.inbox.send(WhyRequest(control_id=2, name=rid))
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 2)
    assert len(run.replies) == 2
    assert told in run.scheduler.decisions()[0].faults[0]


def test_a_good_policy_books_nothing() -> None:
    books = Books()
    run = SchedulerHarness(policy=Broken("order", np.array([0])), ledger=books)
    run.submit([1], max_new_tokens=2)
    run.run()
    assert books.faults == []


class BrokenCache(PageCache):
    def __init__(self, where: str) -> None:
        super().__init__(1)
        self.where = where

    def acquire(self, key: CacheKey, limit: int) -> Any:
        if self.where == "acquire":
            raise RuntimeError("half way")
        return super().acquire(key, limit)

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Any:
        if self.where == "commit":
            raise RuntimeError("half way")
        return super().commit(lease, key, slots, final=final)

    def release(self, lease: Lease) -> None:
        if self.where == "release":
            raise RuntimeError("half way")
        super().release(lease)

    def peek(self, keys: Sequence[CacheKey]) -> NDArray[np.int32]:
        if self.where == "peek":
            raise SystemExit("no")  # a plugin's fault like any other
        return super().peek(keys)


@pytest.mark.parametrize("where", ["acquire", "commit", "release"])
def test_a_cache_that_raises_half_way_stops_the_replica(where: str) -> None:
    books = Books()
    run = SchedulerHarness(cache=BrokenCache(where), ledger=books, cache_plugin="cache.broken")
    run.submit([1, 2, 3], max_new_tokens=2)
    with pytest.raises(RuntimeError, match="half way"):
        run.run()
    assert books.faults == [("cache.broken", FaultScope.STOP, "half way")]


class WrongCache(PageCache):
    """Answers `answer` where asked for `where`."""

    def __init__(self, where: str, answer: Any) -> None:
        super().__init__(1)
        self.where, self.answer = where, answer

    def acquire(self, key: CacheKey, limit: int) -> Any:
        return self.answer if self.where == "acquire" else super().acquire(key, limit)

    def commit(self, lease: Lease, key: CacheKey, slots: NDArray[np.int32], *, final: bool) -> Any:
        return self.answer if self.where == "commit" else super().commit(lease, key, slots, final=final)

    def poll(self) -> Any:
        return self.answer if self.where == "poll" else super().poll()

    def sizes(self) -> Any:
        return self.answer if self.where == "sizes" else super().sizes()

    def peek(self, keys: Sequence[CacheKey]) -> Any:
        return self.answer if self.where == "peek" else super().peek(keys)

    def evict(self, need: Amounts) -> Any:
        return self.answer if self.where == "evict" else super().evict(need)


def slots(*values: int) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("acquire", None),
        ("acquire", Lease(3, slots(1, 2, 3))),  # all of the prompt, where its last token must be computed
        ("acquire", Lease(-1, slots())),
        ("acquire", Lease(2, slots(1))),
        ("commit", None),
        ("commit", Committed(length=99, slots=slots(1, 2, 3), free=Freed())),
        ("commit", Committed(length=2, slots=slots(1), free=Freed())),
        ("commit", Committed(length=0, slots=slots(), free=None)),  # type: ignore[arg-type]
        ("commit", Committed(length=0, slots=slots(), free=Freed(slots=slots(60)))),
        ("poll", None),
        ("poll", Freed(slots=slots(5))),
        ("sizes", None),
    ],
)
def test_an_answer_that_a_cache_may_not_give_stops_the_replica_in_its_name(where: str, answer: Any) -> None:
    books = Books()

    def run() -> None:
        run = SchedulerHarness(cache=WrongCache(where, answer), ledger=books, cache_plugin="cache.wrong")
        run.submit([1, 2, 3], max_new_tokens=2)
        run.run()

    with pytest.raises((BadCacheAnswer, ValueError)):
        run()
    assert [(plugin, scope) for plugin, scope, _ in books.faults] == [("cache.wrong", FaultScope.STOP)]


def test_a_failed_peek_is_only_a_missing_hint() -> None:
    books = Books()
    run = SchedulerHarness(cache=BrokenCache("peek"), ledger=books, policy_needs=frozenset({"cached_tokens"}))
    rid = run.submit([1, 2, 3], max_new_tokens=2)
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 2)
    assert {scope for _, scope, _ in books.faults} == {FaultScope.DEGRADE}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [0],
        np.zeros(0, dtype=np.int32),
        np.zeros((1, 1), dtype=np.int32),
        np.array([np.nan]),
        np.array([-1]),
        np.array([10**12]),
    ],
)
@pytest.mark.parametrize("needs", [frozenset(), frozenset({"cached_tokens"})])
def test_a_hint_that_is_none_is_a_missing_hint(answer: Any, needs: frozenset[str]) -> None:
    """Asked for by policies, and for a waiting twin of a running prompt."""
    books = Books()
    run = SchedulerHarness(
        cache=WrongCache("peek", answer),
        ledger=books,
        cache_plugin="cache.wrong",
        policy_needs=needs,
        hold_back_tokens=2,
        chunked_prefill_size=4,
    )
    first = run.submit(list(range(12)), max_new_tokens=2)
    run.turn()
    twin = run.submit(list(range(12)), max_new_tokens=2)
    run.run()
    for rid in (first, twin):
        assert run.answers[rid].ids == run.expected(rid, 2)
    assert {(plugin, scope) for plugin, scope, _ in books.faults} == {("cache.wrong", FaultScope.DEGRADE)}


def test_a_cache_that_does_not_give_what_it_calls_evictable_stops_the_replica_in_its_name() -> None:
    books = Books()
    run = SchedulerHarness(cache=WrongCache("evict", Freed()), ledger=books, cache_plugin="cache.wrong", total_slots=16)
    run.submit(list(range(12)), max_new_tokens=2)
    run.run()
    run.submit([50, 51, 52, 53, 54, 55], max_new_tokens=2)
    with pytest.raises(BadCacheAnswer, match="evict gave 0 slots back, where 3 were asked for and 13 evictable"):
        run.run()
    assert [(plugin, scope) for plugin, scope, _ in books.faults] == [("cache.wrong", FaultScope.STOP)]


@pytest.mark.parametrize("prefilled", [False, True])
def test_a_row_that_fails_ends_alone_and_leaves_nothing_in_the_cache(
    prefilled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run = SchedulerHarness()
    bad = run.submit(list(range(10)), max_new_tokens=5)
    good = run.submit([7, 8], max_new_tokens=5)
    if prefilled:
        for _ in range(3):
            run.turn()
    run.worker.failing.add(1)
    run.run()
    finish = run.answers[bad].last.finish
    assert finish is not None
    assert (finish.type, finish.status_code, finish.message) == ("abort", 500, ROW_ERROR)
    assert "made to fail" in caplog.text  # the worker's words are for the log, not for the client
    assert run.answers[bad].ids == run.expected(bad, 3 if prefilled else 0)
    assert run.answers[good].ids == run.expected(good, 5)
    run.worker.failing.clear()
    again = run.submit([*range(10), *run.expected(bad, 3)], max_new_tokens=5)
    run.run()
    # Its prompt was shared before it failed; what it decoded since is not trusted.
    assert run.answers[again].last.cached_tokens == (10 if prefilled else 0)
    assert run.answers[again].ids == run.expected(again, 5)
    run.assert_at_rest()


@pytest.mark.parametrize("step", [1, 3])
def test_a_batch_that_cannot_be_planned_ends_its_requests_and_the_replica_goes_on(step: int) -> None:
    books = Books()
    run = SchedulerHarness(ledger=books, worker_plugin="worker.fake", max_running_requests=2)
    run.worker.refusing.add(step)
    ended = [run.submit([i, 2, 3], max_new_tokens=5) for i in range(2)]
    waits = run.submit([7, 8, 9], max_new_tokens=5)
    run.run()
    for rid in ended:
        finish = run.answers[rid].last.finish
        assert finish is not None
        assert (finish.type, finish.status_code, finish.message) == ("abort", 500, ROW_ERROR)
        assert run.answers[rid].ids == run.expected(rid, step - 1)
    assert run.answers[waits].ids == run.expected(waits, 5)
    assert books.faults == [("worker.fake", FaultScope.BATCH, "no plan for this batch")]
    run.assert_at_rest()


class Odd(FakeWorker):
    """Replaces the result of every step."""

    def __init__(self, result: Any) -> None:
        super().__init__(
            WorkerLimits(max_rows=9, max_context=128, total_slots=64, page_size=1, vocab_size=1000, max_tokens=4096)
        )
        self.result = result

    def sample(self, launched: Launched, masks: object = None) -> PendingResult:
        super().sample(launched, masks)
        return FakePending(self.result)


def result(tokens: list[int], starts: list[int], errors: dict[int, str] | None = None) -> WorkerResult:
    return WorkerResult(
        tokens=np.array(tokens, dtype=np.int32), starts=np.array(starts, dtype=np.int32), errors=errors or {}
    )


@pytest.mark.parametrize(
    "odd",
    [
        result([], [0]),
        result([1], [0, 1]),
        result([1, 2, 3], [0, 1, 3]),
        result([1, 2, 3], [0, 1, 2]),
        result([1, 2], [0, 1, 2], {2: "who?"}),
        result([1], [0, 0, 1]),
        None,
        WorkerResult(tokens=np.array([1, np.nan]), starts=np.array([0, 1, 2])),
        WorkerResult(tokens=np.array([1, 2]), starts=np.array([0.0, 1.0, 2.0])),
        WorkerResult(tokens=[1, 2], starts=[0, 1, 2]),  # type: ignore[arg-type]
        WorkerResult(tokens=np.array([[1, 2]]), starts=np.array([0, 1, 2])),
    ],
)
def test_a_result_that_does_not_match_its_batch_stops_the_replica_in_the_workers_name(odd: Any) -> None:
    books = Books()
    run = SchedulerHarness(worker=Odd(odd), ledger=books, worker_plugin="worker.odd")
    run.submit([1], max_new_tokens=3)
    run.submit([2], max_new_tokens=3)
    with pytest.raises(BadWorkerResult):
        run.turn()
    assert [(plugin, scope) for plugin, scope, _ in books.faults] == [("worker.odd", FaultScope.STOP)]


@pytest.mark.parametrize("token", [-1, 1000])
def test_a_token_outside_the_vocabulary_ends_its_request_only(token: int) -> None:
    run = SchedulerHarness(worker=Odd(result([token, 5], [0, 1, 2])))
    run.submit([1], rid="a", max_new_tokens=1)
    run.submit([2], rid="b", max_new_tokens=1)
    run.run()
    assert run.answers["a"].last.finish.status_code == 500  # type: ignore[union-attr]
    assert run.answers["a"].ids == []
    assert run.answers["b"].ids == [5]
    run.assert_at_rest()


class DeadDevice(FakeWorker):
    def launch(self, batch: ModelWorkerBatch) -> Any:
        raise RuntimeError("device lost")


def test_a_workers_failure_comes_out_of_the_phase() -> None:
    limits = WorkerLimits(max_rows=9, max_context=128, total_slots=64, page_size=1, vocab_size=1000, max_tokens=4096)
    books = Books()
    run = SchedulerHarness(worker=DeadDevice(limits), ledger=books, worker_plugin="worker.dead")
    run.submit([1])
    with pytest.raises(RuntimeError, match="device lost"):
        run.turn()
    assert books.faults == [("worker.dead", FaultScope.STOP, "device lost")]


class DeadLater(FakeWorker):
    """Its results raise, whoever asks."""

    def sample(self, launched: Launched, masks: object = None) -> Any:
        class Pending:
            def ready(self) -> bool:
                return False

            def result(self, timeout: float | None = None) -> WorkerResult:
                raise RuntimeError("device lost")

        return Pending()


def test_a_workers_failure_comes_out_of_a_wait_in_its_name_too() -> None:
    limits = WorkerLimits(max_rows=9, max_context=128, total_slots=64, page_size=1, vocab_size=1000, max_tokens=4096)
    books = Books()
    run = SchedulerHarness(worker=DeadLater(limits), ledger=books, worker_plugin="worker.dead")
    run.submit([1])
    scheduler = run.scheduler
    scheduler.ingest()
    batch = scheduler.next_batch()
    assert batch is not None
    scheduler.sample(scheduler.launch(batch))
    with pytest.raises(RuntimeError, match="device lost"):
        scheduler.wait()
    assert books.faults == [("worker.dead", FaultScope.STOP, "device lost")]


class Vandal:
    """An observer that writes into every array that it is shown."""

    def __init__(self) -> None:
        self.refused = 0

    def listens(self, hook_name: str) -> bool:
        return hook_name in ("jackfield_batch_scheduled", "jackfield_batch_committed")

    def notify(self, hook_name: str, **arguments: Any) -> None:
        for record in arguments.values():
            for array in (value for value in vars(record).values() if isinstance(value, np.ndarray)):
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 0
                self.refused += 1


def test_an_observer_cannot_change_what_it_sees() -> None:
    vandal = Vandal()
    run = SchedulerHarness(observers=vandal)
    rid = run.submit([1, 2], max_new_tokens=3)
    run.run()
    assert run.answers[rid].ids == run.expected(rid, 3)
    assert vandal.refused == 3 * 7


def test_a_policy_that_cannot_start_stops_the_start() -> None:
    class NoStart(ArrivalOrder):
        def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
            raise OSError("no table")

    books = Books()
    with pytest.raises(OSError, match="no table"):
        SchedulerHarness(policy=NoStart(), ledger=books, policy_plugin="schedule_policy.broken")
    assert books.faults == [("schedule_policy.broken", FaultScope.STOP, "no table")]
