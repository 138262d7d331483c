"""The contract at its width: several tokens a step, up to three steps in flight, sampling that waits for earlier commits, late
results and late copies. The tokens are those of a worker that gives one at a time, and every step checks the invariants."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import InFlight, ModelWorkerBatch, Want, WorkerLimits, WorkerResult
from jackfield.managers.scheduler.results import BadWorkerResult
from jackfield.testing.page_cache import PageCache
from jackfield.testing.scheduler_fakes import FakeLaunched, FakeWorker
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield.testing.scheduler_wide import WideWorker
from jackfield_scheduler_loops.overlap import OverlapLoop

VOCAB = 1000


def limits(page_size: int = 1, slots: int = 192) -> WorkerLimits:
    return WorkerLimits(
        max_rows=6, max_context=96, total_slots=slots, page_size=page_size, vocab_size=VOCAB, max_tokens=64
    )


def harness(worker: FakeWorker, **config: Any) -> SchedulerHarness:
    settings = {
        "context_length": 96,
        "max_running_requests": 5,
        "max_prefill_tokens": 16,
        "vocab_size": VOCAB,
        **config,
    }
    return SchedulerHarness(worker=worker, cache=PageCache(worker.limits.page_size), **settings)


class Phases:
    """Passes the phases on. Some steps wait for a ticket, which ends while others run."""

    def __init__(self, run: SchedulerHarness, worker: WideWorker, seed: int, tickets: float) -> None:
        self.run, self.worker, self.random, self.tickets = run, worker, random.Random(seed), tickets
        self.waited = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run.scheduler, name)

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        batch = self.run.scheduler.next_batch(want)
        if batch is not None and self.random.random() < self.tickets:
            batch.wait_for = (batch.step,)
            self.worker.tickets.add(batch.step)
        return batch

    def sample(self, step: Any) -> None:
        if self.worker.limits.deferred:
            assert step.deferred
            assert self.run.scheduler._in_flight[0] is step, "a deferred step is sampled before the earlier commits"
        self.run.scheduler.sample(step)

    def commit(self, step: InFlight) -> None:
        first: Any = step
        if first.batch.wait_for:
            if first.launched is not None:
                assert not step.ready(), "the copy has not ended, and the step has"
                assert self.worker.batches[-1].step >= first.batch.step
            self.worker.tickets.difference_update(first.batch.wait_for)
            self.waited += 1
        self.run.scheduler.commit(step)


def alone(prompt: list[int], **sampling: Any) -> list[int]:
    run = harness(FakeWorker(limits()))
    rid = run.submit(prompt, **sampling)
    run.run()
    return run.answers[rid].ids


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("width", [2, 5])
def test_several_tokens_a_step_are_the_same_tokens(width: int, depth: int, deferred: bool, page_size: int) -> None:
    worker = WideWorker(limits(page_size), width=width, deferred=deferred, late=2)
    run = harness(worker)
    phases: Any = Phases(run, worker, seed=depth, tickets=0.2)
    loop = OverlapLoop(phases, depth)
    rng = random.Random(100 * width + depth)
    stops = tuple(range(0, VOCAB, 9))
    sent: dict[str, dict[str, Any]] = {}
    while len(sent) < 60:
        if rng.random() < 0.3:
            prompt = [letter for _ in range(rng.randint(1, 4)) for letter in [rng.randint(1, 2)] * 11]
            sampling: dict[str, Any] = {"max_new_tokens": rng.randint(0, 20)}
            if rng.random() < 0.5:
                sampling["stop_token_ids"] = stops
            sent[run.submit(prompt[: rng.randint(1, len(prompt))], **sampling)] = sampling
        if sent and rng.random() < 0.1:
            run.abort(rng.choice(list(sent)[-4:]))
        loop.step()
        run.collect()
    while run.scheduler.state().running or run.scheduler.state().waiting or run.scheduler.state().in_flight:
        loop.step()
        run.collect()
    run.collect()
    aborted = 0
    for rid, sampling in sent.items():
        answer, expected = run.answers[rid], alone(run.prompts[rid], **sampling)
        assert answer.finish is not None
        if answer.finish.type == "abort":
            aborted += 1
            assert answer.ids == expected[: len(answer.ids)]
        else:
            assert answer.ids == expected
            assert answer.finish.type == (
                "stop" if expected and expected[-1] in sampling.get("stop_token_ids", ()) else "length"
            )
    assert aborted > 0
    assert phases.waited > 0
    assert max(worker.gave) == width
    if depth > 1 and not deferred:
        assert not all(batch.exact for batch in worker.batches)
    run.assert_at_rest()


def test_a_result_of_a_later_step_may_be_there_before_an_earlier_one() -> None:
    """Commits go in launch order, whatever comes first."""
    worker = WideWorker(limits(), width=2)
    run = harness(worker)
    rid = run.submit([1, 2, 3], max_new_tokens=9)
    scheduler = run.scheduler
    scheduler.ingest()
    steps = []
    for number in range(3):
        batch = scheduler.next_batch()
        assert batch is not None
        if number == 0:
            batch.wait_for = (7,)
            worker.tickets.add(7)
        steps.append(scheduler.launch(batch))
        scheduler.sample(steps[-1])
    assert [step.ready() for step in steps] == [False, True, True]
    with pytest.raises(RuntimeError, match="before step"):
        scheduler.commit(steps[1])
    worker.tickets.clear()
    for step in steps:
        scheduler.commit(step)
    run.run()
    assert run.answers[rid].ids == alone([1, 2, 3], max_new_tokens=9)


@pytest.mark.parametrize("count", [0, 4])
def test_more_tokens_than_slots_or_none_is_an_error_of_the_worker(count: int) -> None:
    class Greedy(WideWorker):
        def launch(self, batch: ModelWorkerBatch) -> FakeLaunched:
            return FakeLaunched(batch, [], [])

        def sample(self, launched: Any, masks: object = None) -> Any:
            class Pending:
                def ready(self) -> bool:
                    return True

                def result(self, timeout: float | None = None) -> WorkerResult:
                    given = count if launched.batch.new_tokens[0] == 1 else 1
                    return WorkerResult(
                        tokens=np.full(given, 5, dtype=np.int32), starts=np.array([0, given], dtype=np.int32)
                    )

            return Pending()

    run = harness(Greedy(limits(), width=3))
    run.submit([1, 2, 3], max_new_tokens=9)
    run.turn()
    with pytest.raises(BadWorkerResult, match=f"{count} tokens came back for batch row 0, where 1 to 3 were asked"):
        run.turn()


def test_the_last_tokens_of_a_request_take_no_slot_beyond_its_reservation() -> None:
    """A pool that the request fills to the last slot: a wide step near its end gets fewer slots than the width."""
    worker = WideWorker(limits(slots=12), width=5)
    run = harness(worker)
    rid = run.submit([1, 2, 3, 4], max_new_tokens=9)
    run.run()
    assert run.answers[rid].ids == alone([1, 2, 3, 4], max_new_tokens=9)
    assert min(int(batch.most[0]) for batch in worker.batches if batch.most is not None) == 1
    run.assert_at_rest()
