"""A worker on a thread of its own: calls return at once, keep their order, and bring failures to where results are read."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import (
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    PendingResult,
    WorkerLimits,
    WorkerOp,
    WorkerReply,
    WorkerResult,
)
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.testing.scheduler_harness import SchedulerHarness

LIMITS = WorkerLimits(max_rows=9, max_context=128, total_slots=64, page_size=1, vocab_size=1000, max_tokens=4096)
PATIENCE = 60.0
"""Seconds until a test that hangs gives up."""


class Ticket(Launched):
    __slots__ = ("step",)

    def __init__(self, step: int) -> None:
        self.step = step


class Result:
    def __init__(self, step: int, error: Exception | None = None) -> None:
        self.step, self.error = step, error
        self.came = threading.Event()

    def ready(self) -> bool:
        return self.came.is_set()

    def result(self, timeout: float | None = None) -> WorkerResult:
        if not self.came.wait(PATIENCE if timeout is None else timeout):
            raise TimeoutError(f"step {self.step} is late")
        if self.error is not None:
            raise self.error
        return WorkerResult(tokens=np.array([self.step], dtype=np.int32), starts=np.array([0, 1], dtype=np.int32))


class Gated(ModelWorker):
    """Each launch passes `gate` first; notes every call with the thread that made it."""

    limits = LIMITS

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.calls: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self.results: dict[int, Result] = {}
        self.fail: dict[str, BaseException] = {}

    def _note(self, what: str, step: int = 0) -> None:
        self.calls.append((what, step))
        self.threads.add(threading.get_ident())
        if f"{what} {step}" in self.fail:
            raise self.fail[f"{what} {step}"]

    def launch(self, batch: ModelWorkerBatch) -> Launched:
        assert self.gate.acquire(timeout=PATIENCE)
        self._note("launch", batch.step)
        return Ticket(batch.step)

    def sample(self, launched: Launched, masks: Any = None) -> PendingResult:
        assert isinstance(launched, Ticket)
        self._note("sample", launched.step)
        assert masks in (None, f"masks {launched.step}")
        return self.results.setdefault(launched.step, Result(launched.step))

    def control(self, op: WorkerOp) -> WorkerReply:
        self._note(op.name)
        return WorkerReply(ok=True, message=f"did {op.name}")

    def close(self) -> None:
        self._note("close")


def batch(step: int) -> ModelWorkerBatch:
    one = np.ones(1, dtype=np.int32)
    yes = np.ones(1, dtype=np.bool_)
    return ModelWorkerBatch(step=step, rows=one, new_tokens=one, computed=one, token_ids=one, relay=~yes, sample=yes)


def start(worker: ThreadedWorker, step: int, masks: Any = None) -> PendingResult:
    return worker.sample(worker.launch(batch(step)), masks)


@pytest.fixture
def inner() -> Gated:
    return Gated()


@pytest.fixture
def worker(inner: Gated) -> Any:
    made = ThreadedWorker(inner)
    yield made
    inner.gate.release(100)
    made.close()


def test_calls_return_while_the_worker_computes_and_keep_their_order(inner: Gated, worker: ThreadedWorker) -> None:
    assert worker.limits is LIMITS
    pending = [start(worker, step, f"masks {step}") for step in (1, 2)]
    assert not any(result.ready() for result in pending)
    with pytest.raises(TimeoutError):
        pending[0].result(0.0)
    inner.gate.release()
    inner.results[1] = Result(1)
    inner.results[1].came.set()
    assert pending[0].result(PATIENCE).tokens.tolist() == [1]
    assert pending[0].ready()
    assert not pending[1].ready()  # step 2 has not got through the gate
    inner.gate.release()
    inner.results.setdefault(2, Result(2)).came.set()
    assert pending[1].result().tokens.tolist() == [2]
    assert inner.calls == [("launch", 1), ("sample", 1), ("launch", 2), ("sample", 2)]
    assert len(inner.threads) == 1
    assert threading.get_ident() not in inner.threads


def test_the_workers_own_result_may_come_later_than_its_sampling(inner: Gated, worker: ThreadedWorker) -> None:
    pending = [start(worker, step) for step in (1, 2)]
    inner.gate.release(2)
    assert worker.control(WorkerOp(name="look")).message == "did look"  # so both are sampled
    assert inner.calls[-2:] == [("sample", 2), ("look", 0)]  # the thread waited for no result
    assert not pending[0].ready()
    with pytest.raises(TimeoutError, match="late"):
        pending[0].result(0.0)
    for result in inner.results.values():
        result.came.set()
    assert [result.result().tokens.tolist() for result in pending] == [[1], [2]]


@pytest.mark.parametrize("where", ["launch 2", "sample 2"])
def test_a_failure_comes_out_of_the_result_and_of_every_later_one(
    inner: Gated, worker: ThreadedWorker, where: str
) -> None:
    error = inner.fail[where] = RuntimeError("the device is gone")
    inner.gate.release(3)
    pending = [start(worker, step) for step in (1, 2, 3)]
    inner.results.setdefault(1, Result(1)).came.set()
    assert pending[0].result().tokens.tolist() == [1]
    for result in pending[1:]:
        with pytest.raises(RuntimeError, match="device is gone") as caught:
            result.result()
        assert caught.value is error
        assert result.ready()
    assert ("launch", 3) not in inner.calls  # nothing reaches a worker whose state is unknown
    with pytest.raises(RuntimeError, match="device is gone"):
        worker.control(WorkerOp(name="look"))
    worker.close()
    assert inner.calls[-1] == ("close", 0)


def test_a_result_that_fails_ends_nothing_by_itself(inner: Gated, worker: ThreadedWorker) -> None:
    inner.gate.release(2)
    inner.results[1] = Result(1, ValueError("of the result"))
    pending = [start(worker, step) for step in (1, 2)]
    worker.control(WorkerOp(name="look"))
    for result in inner.results.values():
        result.came.set()
    with pytest.raises(ValueError, match="of the result"):
        pending[0].result()
    assert pending[1].result().tokens.tolist() == [2]


def test_even_an_exit_comes_to_the_caller(inner: Gated, worker: ThreadedWorker) -> None:
    inner.fail["launch 1"] = SystemExit(3)
    inner.gate.release()
    with pytest.raises(SystemExit):
        start(worker, 1).result()


def test_close_ends_what_was_launched_and_then_the_thread(inner: Gated) -> None:
    before = threading.active_count()
    worker = ThreadedWorker(inner)
    pending = start(worker, 1)
    inner.gate.release()
    worker.close()
    worker.close()
    assert inner.calls == [("launch", 1), ("sample", 1), ("close", 0)]
    assert threading.active_count() == before
    inner.results[1].came.set()
    assert pending.result().tokens.tolist() == [1]  # what is pending stays readable
    for call in (lambda: worker.launch(batch(2)), lambda: worker.control(WorkerOp(name="look"))):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_a_failing_close_is_told_and_leaves_no_thread(inner: Gated) -> None:
    before = threading.active_count()
    worker = ThreadedWorker(inner)
    inner.fail["close 0"] = OSError("cannot")
    with pytest.raises(OSError, match="cannot"):
        worker.close()
    assert threading.active_count() == before


def test_a_strangers_launch_is_refused(worker: ThreadedWorker) -> None:
    with pytest.raises(TypeError, match="Ticket was not launched here"):
        worker.sample(Ticket(1))


def test_a_scheduler_on_it_gives_the_same_tokens_and_is_told_of_failures() -> None:
    run = SchedulerHarness(page_size=4)
    fake = run.worker
    threaded: Any = ThreadedWorker(fake)
    run.scheduler._worker.worker = threaded
    rids = [run.submit(list(range(length)), max_new_tokens=length) for length in (1, 7, 30)]
    run.run()
    assert [run.answers[rid].ids for rid in rids] == [run.expected(rid, len(run.prompts[rid])) for rid in rids]
    run.assert_at_rest()
    run.submit([1], rid="last", max_new_tokens=9)
    run.scheduler.ingest()
    step = run.scheduler.launch(run.scheduler.next_batch())  # type: ignore[arg-type]
    run.scheduler.sample(step)
    assert not threaded.control(WorkerOp(name="wait for the step")).ok
    fake._rows.clear()  # the next launch finds its row gone
    later = run.scheduler.launch(run.scheduler.next_batch())  # type: ignore[arg-type]
    run.scheduler.sample(later)
    run.scheduler.commit(step)
    with pytest.raises(KeyError):
        run.scheduler.commit(later)
    threaded.close()
