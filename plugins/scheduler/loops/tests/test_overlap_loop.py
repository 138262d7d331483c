"""The overlap loop: what it launches before it commits, surplus tokens, aborts and flushes between launch and commit, and
whole runs over workers that prove every slot, whose results come late, or whose steps are deferred."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

from jackfield.hookspecs import (
    CacheContext,
    EventLoop,
    EventLoopContext,
    InFlight,
    Launched,
    ModelWorkerBatch,
    PendingResult,
    Shard,
    StepOutcome,
    Wake,
    Want,
    WorkerContext,
    WorkerLimits,
    WorkerResult,
)
from jackfield.ipc.messages import FlushCacheRequest, StopRequest
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.testing.scheduler_fakes import FakeWorker
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.chunk import jackfield_prefix_cache as make_chunk
from jackfield_cache_prefix.radix import jackfield_prefix_cache as make_radix
from jackfield_scheduler_loops.overlap import OverlapLoop
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.worker import SimulatedWorker


class Step:
    def __init__(self, number: int, deferred: bool) -> None:
        self.number, self.deferred = number, deferred

    def ready(self) -> bool:
        return True


class Recorder:
    """Phases that note their calls. work: for each turn, a batch (True) or none; deferred: numbers of the steps that are."""

    def __init__(self, *work: bool, deferred: frozenset[int] = frozenset()) -> None:
        self.calls: list[str] = []
        self.work = list(work)
        self.deferred = deferred
        self.launched = 0
        self.fail = ""

    def take(self) -> str:
        calls, self.calls = " ".join(self.calls), []
        return calls

    def _note(self, what: str) -> None:
        self.calls.append(what)
        if what == self.fail:
            raise RuntimeError(what)

    def ingest(self) -> int:
        return 0

    def poll(self) -> int:
        return 0

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        return object() if self.work and self.work.pop(0) else None

    def launch(self, batch: Any, lane: int = 0) -> Step:
        self.launched += 1
        self._note(f"launch{self.launched}")
        return Step(self.launched, self.launched in self.deferred)

    def sample(self, step: Any) -> None:
        self._note(f"sample{step.number}")

    def commit(self, step: Any) -> None:
        self._note(f"commit{step.number}")

    def wait(self, until: float | None = None) -> Wake:
        raise AssertionError("a loop's step never waits for messages")

    def idle(self) -> None:
        self._note("idle")


def test_a_step_is_committed_after_the_next_is_launched() -> None:
    phases = Recorder(True, True, True)
    loop = OverlapLoop(phases)
    turns = []
    while loop.step() is StepOutcome.RAN:
        turns.append(phases.take())
    assert turns == ["launch1 sample1", "launch2 sample2 commit1", "launch3 sample3 commit2", "commit3"]
    assert phases.take() == "idle"


def test_without_a_batch_what_is_in_flight_is_committed_and_idle_comes_last() -> None:
    phases = Recorder(True, False, True, False, False)
    loop = OverlapLoop(phases)
    assert [loop.step() for _ in range(5)] == [StepOutcome.RAN] * 4 + [StepOutcome.IDLE]
    assert phases.take() == "launch1 sample1 commit1 launch2 sample2 commit2 idle"


def test_three_deep() -> None:
    phases = Recorder(True, True, True, True)
    loop = OverlapLoop(phases, depth=3)
    for _ in range(4):
        loop.step()
    assert phases.take() == "launch1 sample1 launch2 sample2 launch3 sample3 commit1 launch4 sample4 commit2"
    loop.settle()
    assert phases.take() == "commit3 commit4"
    loop.settle()
    assert phases.take() == ""


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_deferred_step_is_sampled_after_all_earlier_commits_and_before_the_next_launch(depth: int) -> None:
    phases = Recorder(True, True, True, True, deferred=frozenset({3}))
    loop = OverlapLoop(phases, depth=depth)
    while loop.step() is StepOutcome.RAN:
        pass
    calls = phases.take().split()
    assert calls.index("launch3") < calls.index("sample3") < calls.index("launch4")
    assert calls.index("commit2") < calls.index("sample3") < calls.index("commit3")
    if depth > 1:
        assert calls.index("launch3") < calls.index("commit2")  # launched all the same
    assert [call for call in calls if call.startswith("commit")] == [f"commit{i}" for i in (1, 2, 3, 4)]


def test_depth_one_is_the_normal_loop_and_less_is_refused() -> None:
    phases = Recorder(True, True)
    loop = OverlapLoop(phases, depth=1)
    while loop.step() is StepOutcome.RAN:
        pass
    assert phases.take() == "launch1 sample1 commit1 launch2 sample2 commit2 idle"
    with pytest.raises(ValueError, match="depth is 0"):
        OverlapLoop(phases, depth=0)


# on a real scheduler


def make_loop(run: SchedulerHarness) -> EventLoop:
    """As the core makes it."""
    (point,) = entry_points(group="jackfield.event_loop", name="overlap")
    context = EventLoopContext(kind="event_loop", name="overlap", instance="overlap", phases=run.scheduler)
    loop = point.load().jackfield_event_loop(context=context)
    assert isinstance(loop, OverlapLoop)
    return loop


def finish(run: SchedulerHarness, loop: EventLoop) -> None:
    for _ in range(20_000):
        outcome = loop.step()
        run.collect()
        state = run.scheduler.state()
        if outcome is StepOutcome.IDLE and not state.waiting and not state.running:
            return
    raise AssertionError(f"it does not end: {run.scheduler.state()}")


def test_a_run_on_a_real_scheduler_relays_every_token() -> None:
    run = SchedulerHarness(page_size=4)
    loop = make_loop(run)
    rid = run.submit([1, 2, 3], max_new_tokens=6)
    finish(run, loop)
    assert run.answers[rid].ids == run.expected(rid, 6)
    assert [batch.relay.tolist() for batch in run.worker.batches] == [[False]] + [[True]] * 5
    run.assert_at_rest()


def test_the_surplus_token_of_an_end_token_is_never_shown() -> None:
    run = SchedulerHarness(vocab_size=50, page_size=4)
    tokens = SchedulerHarness(vocab_size=50)
    rid = tokens.submit([3, 1, 4], max_new_tokens=30)
    expected = tokens.expected(rid, 30)
    end = expected[5]
    first = expected.index(end)
    rid = run.submit([3, 1, 4], max_new_tokens=30, stop_token_ids=(end,))
    finish(run, make_loop(run))
    assert run.answers[rid].ids == expected[: first + 1]
    ending = run.answers[rid].finish
    assert ending is not None
    assert (ending.type, ending.matched) == ("stop", end)
    assert len(run.worker.batches) == first + 2  # one step too many was computed
    assert run.scheduler.state().in_flight == 0
    run.assert_at_rest()


@pytest.mark.parametrize("stop", [False, True])
def test_no_token_comes_after_an_end_between_launch_and_commit(stop: bool) -> None:
    """B43, B61: the abort is read while the request's step is in flight; its row and slots go to the next request at once."""
    run = SchedulerHarness(max_running_requests=1, total_slots=8, context_length=8)
    loop = make_loop(run)
    first = run.submit([1, 2, 3], max_new_tokens=6)
    second = run.submit([4, 5, 6, 7], max_new_tokens=3)
    for _ in range(3):
        loop.step()
    run.collect()
    assert run.scheduler.state().in_flight == 1
    shown = list(run.answers[first].ids)
    assert shown == run.expected(first, 2)
    run.inbox.send(StopRequest(rid=first)) if stop else run.abort(first)
    loop.step()
    run.collect()
    answer = run.answers[first]
    assert answer.ids == shown
    assert answer.finish is not None
    assert answer.finish.type == ("stop" if stop else "abort")
    # The step that took over the row was launched while the old one was still in flight.
    assert run.worker.batches[-1].opened[0].row == run.worker.batches[0].opened[0].row
    finish(run, loop)
    assert run.answers[second].ids == run.expected(second, 3)
    run.assert_at_rest()


def test_a_flush_right_after_the_answer_is_not_refused_for_the_surplus_step() -> None:
    run = SchedulerHarness(vocab_size=50)
    loop = make_loop(run)
    probe = SchedulerHarness(vocab_size=50)
    end = probe.expected(probe.submit([3, 1, 4], max_new_tokens=3), 3)[2]
    rid = run.submit([3, 1, 4], max_new_tokens=30, stop_token_ids=(end,))
    while rid not in run.answers or run.answers[rid].finish is None:
        loop.step()
        run.collect()
    assert run.scheduler.state().in_flight == 1
    run.inbox.send(FlushCacheRequest(control_id=7))
    finish(run, loop)
    assert [(reply.control_id, reply.ok, reply.message) for reply in run.replies] == [(7, True, "")]
    assert run.scheduler.state().free == run.scheduler.state().total
    run.assert_at_rest()


class Gated(FakeWorker):
    """A launch computes when the test lets it."""

    def __init__(self, limits: WorkerLimits) -> None:
        super().__init__(limits)
        self.gate = threading.Semaphore(0)

    def launch(self, batch: ModelWorkerBatch) -> Any:
        assert self.gate.acquire(timeout=60)
        return super().launch(batch)


def small_limits(rows: int = 9) -> WorkerLimits:
    return WorkerLimits(max_rows=rows, max_context=128, total_slots=256, page_size=1, vocab_size=1000, max_tokens=4096)


def test_a_step_is_committed_while_the_next_one_runs() -> None:
    """The worker computes in `launch`; on its thread, the commit of step 1 does not wait for step 2."""
    inner = Gated(small_limits())
    worker: Any = ThreadedWorker(inner)
    run = SchedulerHarness(worker=worker)
    loop = make_loop(run)
    try:
        rid = run.submit([1, 2, 3], max_new_tokens=3)
        loop.step()  # launched, and not waited for
        inner.gate.release()
        loop.step()  # launches step 2, which stands before the gate, and commits step 1
        run.collect()
        assert run.answers[rid].ids == run.expected(rid, 1)
        assert len(inner.batches) == 1
        assert not run.scheduler._in_flight[0].ready()
        inner.gate.release(2)
        finish(run, loop)
        assert run.answers[rid].ids == run.expected(rid, 3)
        run.assert_at_rest()
    finally:
        inner.gate.release(100)
        worker.close()


class LateResult:
    def __init__(self, worker: Late, order: int, result: PendingResult) -> None:
        self.worker, self.order, self.inner = worker, order, result

    def ready(self) -> bool:
        return self.worker.waited_for >= self.order

    def result(self, timeout: float | None = None) -> WorkerResult:
        if timeout is not None and not self.ready():
            raise TimeoutError
        self.worker.waited_for = max(self.worker.waited_for, self.order)
        self.worker.lead.append(self.worker.order - self.order)
        return self.inner.result()


class Late(FakeWorker):
    """No result is ready before somebody blocks for it. lead: steps that had been sampled beyond it by then."""

    def __init__(self, limits: WorkerLimits) -> None:
        super().__init__(limits)
        self.order = self.waited_for = 0
        self.lead: list[int] = []

    def sample(self, launched: Launched, masks: object = None) -> LateResult:
        self.order += 1
        return LateResult(self, self.order, super().sample(launched, masks))


class Whims:
    """Passes the phases on; some steps are deferred, and some turns find no batch though there is one."""

    def __init__(self, run: SchedulerHarness, seed: int, deferred: float, none: float) -> None:
        self.run, self.random = run, random.Random(seed)
        self.deferred, self.none = deferred, none

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run.scheduler, name)

    def next_batch(self, want: Want = Want.ANY) -> Any | None:
        return None if self.random.random() < self.none else self.run.scheduler.next_batch(want)

    def launch(self, batch: Any, lane: int = 0) -> InFlight:
        step = self.run.scheduler.launch(batch, lane)
        step.deferred = self.random.random() < self.deferred
        return step

    def sample(self, step: Any) -> None:
        if step.deferred:
            assert self.run.scheduler._in_flight[0] is step, "a deferred step is sampled before the earlier commits"
        self.run.scheduler.sample(step)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("deferred", "none"), [(0.0, 0.0), (0.4, 0.0), (0.3, 0.2)])
def test_the_contract_holds_for_late_results_deferred_sampling_and_three_steps(
    depth: int, deferred: float, none: float
) -> None:
    worker = Late(small_limits(rows=5))
    run = SchedulerHarness(worker=worker, max_running_requests=4, max_prefill_tokens=16, eos_token_ids=(0, 1, 2))
    phases: Any = Whims(run, depth, deferred, none)
    walk(run, OverlapLoop(phases, depth), seed=10 + depth, requests=80)
    check(run, lambda prompt, count: run_alone(prompt, count))
    if not deferred and not none:
        assert max(worker.lead) == depth - 1  # that many steps were launched and sampled behind the one waited for


def run_alone(prompt: list[int], count: int) -> list[int]:
    run = SchedulerHarness(worker=FakeWorker(small_limits()), eos_token_ids=(0, 1, 2))
    rid = run.submit(prompt, max_new_tokens=count)
    run.run()
    return run.answers[rid].ids


def walk(run: SchedulerHarness, loop: EventLoop, seed: int, requests: int, **sampling: Any) -> None:
    """Random requests over few prompts that come while others run; some are aborted on the way, some stopped."""
    rng = random.Random(seed)
    sent: list[str] = []
    while len(sent) < requests:
        if rng.random() < 0.4:
            prompt = [letter for _ in range(rng.randint(1, 4)) for letter in [rng.randint(1, 2)] * 11]
            prompt = prompt[: rng.randint(1, len(prompt))]
            sent.append(run.submit(prompt, max_new_tokens=rng.randint(0, 12), **sampling))
        if sent and rng.random() < 0.15:
            rid = rng.choice(sent[-4:])
            run.inbox.send(StopRequest(rid=rid)) if rng.random() < 0.3 else run.abort(rid)
        loop.step()
        run.collect()
    finish(run, loop)


def check(run: SchedulerHarness, alone: Callable[[list[int], int], list[int]]) -> None:
    """Each answer is that of the request alone, or the beginning of it if somebody ended it; the pool is whole."""
    known: dict[tuple[int, ...], list[int]] = {}
    ended = 0
    for rid, answer in run.answers.items():
        prompt = tuple(run.prompts[rid])
        if prompt not in known:
            known[prompt] = alone(list(prompt), 12)
        finish = answer.finish
        assert finish is not None
        assert answer.ids == known[prompt][: len(answer.ids)]
        if finish.type == "length":
            assert finish.length == len(answer.ids)
        ended += finish.type == "abort"
    assert set(run.answers) == set(run.prompts)
    assert ended > 3
    run.assert_at_rest()


def simulated(cache: str, page_size: int, **config: Any) -> SchedulerHarness:
    """verify=all: before each step, the worker holds every slot of every row in it against the row's own tokens."""
    make = {"radix": make_radix, "chunk": make_chunk}[cache]
    worker: Any = SimulatedWorker(
        WorkerContext(
            kind="worker",
            name="simulated",
            instance="simulated",
            shard=Shard(),
            device="cpu",
            dtype="float32",
            seed=0,
            page_size=page_size,
            max_running=8,
            max_total_tokens=192,
            max_context=96,
            max_tokens=64,
            vocab_size=1000,
        ),
        SimulatedOptions(verify="all"),
    )
    made = make(CacheContext(kind="cache", name=cache, instance=cache, page_size=page_size, total_slots=192))
    return SchedulerHarness(worker=worker, cache=made, context_length=96, vocab_size=1000, **config)


@pytest.mark.parametrize("cache", ["radix", "chunk"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("depth", [2, 3])
def test_a_late_commit_never_lets_a_freed_slot_be_written_after_its_reuse(
    cache: str, page_size: int, depth: int
) -> None:
    """Requests end by tokens that are known a step late, in a pool so small that their slots are reused at once; the worker
    refuses a slot that holds another prefix, or that two rows use."""
    run = simulated(cache, page_size, max_prefill_tokens=32)
    stops = tuple(range(0, 1000, 6))  # about every sixth token ends its request
    walk(run, OverlapLoop(run.scheduler, depth), seed=page_size + depth, requests=80, stop_token_ids=stops)
    stopped = [answer for answer in run.answers.values() if answer.finish is not None and answer.finish.type == "stop"]
    assert sum(answer.finish is not None and answer.finish.matched is not None for answer in stopped) > 10

    def alone(prompt: list[int], count: int) -> list[int]:
        one = simulated("chunk", 1)
        rid = one.submit(prompt, max_new_tokens=count, stop_token_ids=stops)
        one.run()
        return one.answers[rid].ids

    check(run, alone)
