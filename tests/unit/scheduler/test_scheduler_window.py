"""Requests of a model with window layers through the whole scheduler: what each of them gets is what it gets where every layer
keeps everything, each read of the window pool is proven by the worker, and the pool's sums and promises hold in every step."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import WorkerLimits
from jackfield.managers.scheduler.config import SchedulerConfig, check_limits
from jackfield.managers.scheduler.window import most_held
from jackfield.testing.covering import pairwise
from jackfield_scheduler_policies.priority import PriorityFirst, PriorityOptions
from jackfield_worker_simulated.errors import SimulationError
from tests.unit.scheduler.windowed import WindowedRun

WINDOW = 8


def crowd(run: WindowedRun, depth: int, seed: int, aborts: bool = False) -> dict[str, list[int]]:
    """Requests over few prompts, many of them much longer than the window. What those got that were not aborted."""
    rng = np.random.default_rng(seed)
    in_flight: deque[Any] = deque()
    kept = []
    for number in range(45):
        head = [int(rng.integers(1, 4))] * int(rng.integers(1, 50))
        prompt = head + [number % 5 + 10] * int(rng.integers(1, 9))
        rid = run.submit(prompt, max_new_tokens=int(rng.integers(1, 40)), ignore_eos=True)
        kept.append(rid)
        for _ in range(int(rng.integers(0, 6))):
            run.advance(in_flight, depth)
        if aborts and number % 6 == 5:
            run.abort(kept.pop(-2))
    while in_flight:
        run.scheduler.commit(in_flight.popleft())
    run.drive(depth)
    run.assert_at_rest()
    state = run.scheduler.state()
    assert state.window["free"] + state.window["evictable"] == state.window["total"]
    return {rid: run.answers[rid].ids for rid in kept}


_unbounded: dict[int, dict[str, list[int]]] = {}


def unbounded(seed: int) -> dict[str, list[int]]:
    if seed not in _unbounded:
        _unbounded[seed] = crowd_without_window(seed)
    return _unbounded[seed]


def crowd_without_window(seed: int) -> dict[str, list[int]]:
    run = WindowedRun("chunk", window=None, total=1024)
    rng = np.random.default_rng(seed)
    for number in range(45):
        head = [int(rng.integers(1, 4))] * int(rng.integers(1, 50))
        prompt = head + [number % 5 + 10] * int(rng.integers(1, 9))
        run.submit(prompt, max_new_tokens=int(rng.integers(1, 40)), ignore_eos=True)
        rng.integers(0, 6)
    run.run()
    return {rid: answer.ids for rid, answer in run.answers.items()}


SHAPES = pairwise({"cache": ["chunk", "lru"], "depth": [1, 2, 3], "chunk": [None, 8, -1], "page_size": [1, 4]})


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_answers_are_those_of_a_model_that_keeps_everything(shape: dict[str, Any]) -> None:
    """A window pool that holds little more than one request at its largest, and a whole pool that holds some."""
    cache, depth, chunk, page_size = shape.values()
    step = {None: 16, 8: 8, -1: 128}[chunk] + 1
    slots = min(256, most_held(WINDOW, page_size, step))
    run = WindowedRun(
        cache,
        window=WINDOW,
        window_slots=slots,
        page_size=page_size,
        chunked_prefill_size=chunk,
        max_prefill_tokens=16,
        schedule_conservativeness=0.01,
    )
    found = crowd(run, depth, page_size, aborts=True)
    assert found.items() <= unbounded(page_size).items()


@pytest.mark.parametrize("eviction", ["lfu", "fifo", "mru", "filo", "priority", "slru"])
def test_every_strategy_under_both_kinds_of_need(eviction: str) -> None:
    run = WindowedRun(eviction, window=WINDOW, total=160, window_slots=48, page_size=4, max_prefill_tokens=8)
    assert crowd(run, 2, 4) == unbounded(4)
    assert sum(answer.last.cached_tokens for answer in run.answers.values()) > 60
    assert run.scheduler._memory.evicted > 100


def test_who_is_promised_all_is_never_retracted() -> None:
    """With every output reserved, the invariants, checked in each step, hold the promises of both pools, and nobody has to go."""
    for cache in ("chunk", "lru"):
        for depth in (1, 2):
            run = WindowedRun(
                cache, window=WINDOW, window_slots=64, max_prefill_tokens=16, schedule_conservativeness=11
            )
            assert crowd(run, depth, 1) == unbounded(1)
            assert run.scheduler.state().retractions == 0


def test_a_crowd_of_long_answers_needs_a_window_each() -> None:
    """Eight requests that come to 110 tokens each run together in 8 * 20 slots of the window pool."""
    run = WindowedRun(
        "chunk", window=WINDOW, total=1024, window_slots=160, chunked_prefill_size=4, max_prefill_tokens=8
    )
    rids = [run.submit([number + 1] * 10, max_new_tokens=100, ignore_eos=True) for number in range(8)]
    together = 0
    in_flight: deque[Any] = deque()
    for _ in range(400):
        run.advance(in_flight, 2)
        together = max(together, run.scheduler.state().running)
    assert together == 8
    assert all(len(run.answers[rid].ids) == 100 for rid in rids)
    assert run.peak <= 8 * (WINDOW + 3)
    assert run.scheduler.state().retractions == 0


@pytest.mark.parametrize(("window_slots", "together"), [(30, 1), (45, 2), (500, 3)])
def test_the_scarcer_pool_decides_who_is_admitted(window_slots: int, together: int) -> None:
    """The whole pool has room for all, and the window pool for one at a time, or two, until one comes to its end."""
    run = WindowedRun(
        "chunk",
        window=WINDOW,
        total=1024,
        window_slots=window_slots,
        max_prefill_tokens=8,
        schedule_conservativeness=11,
    )
    for number in range(3):
        run.submit([number + 1] * 40, max_new_tokens=40, ignore_eos=True)
    in_flight: deque[Any] = deque()
    for _ in range(30):
        run.advance(in_flight, 1)
    assert run.scheduler.state().running == together
    run.drive(1)


def test_a_more_urgent_request_gets_the_window_of_others() -> None:
    """It lacks nothing in the whole pool: whoever has to go for it goes for the window pool alone."""
    run = WindowedRun(
        "chunk",
        window=WINDOW,
        total=1024,
        window_slots=45,
        max_prefill_tokens=8,
        schedule_conservativeness=11,
        policy=PriorityFirst(PriorityOptions(ageing=0, preempt_difference=10)),
    )
    low = [run.submit([number + 1] * 20, max_new_tokens=60, ignore_eos=True) for number in range(3)]
    in_flight: deque[Any] = deque()
    for _ in range(20):
        run.advance(in_flight, 1)
    high = run.submit([9] * 20, max_new_tokens=10, ignore_eos=True, priority=15)
    for _ in range(18):
        run.advance(in_flight, 1)
    assert len(run.answers[high].ids) == 10
    assert run.scheduler.state().retractions == 1
    run.drive(1)
    assert all(len(run.answers[rid].ids) == 60 for rid in low)


def test_a_hit_at_a_tombstone_is_shortened_and_brings_it_back() -> None:
    """An old prompt loses its window to others and keeps its full KV; who comes with it again computes it again, once."""
    run = WindowedRun("lru", window=WINDOW, total=512, window_slots=60, max_prefill_tokens=32)
    old = [7] * 40

    def ask(prompt: list[int]) -> int:
        rid = run.submit(prompt, max_new_tokens=1)
        run.drive(1)
        return run.answers[rid].last.cached_tokens

    assert [ask([*old, 1]), ask([*old, 2])] == [0, 40]
    for number in range(3):
        ask([100 + number] * 50)
    kept = run.scheduler.state().evictable
    assert kept >= 100, "the full KV was not to go"
    again = ask([*old, 3])
    assert again < 40
    assert ask([*old, 4]) == 40
    assert run.scheduler.state().evictable <= kept + 2


def test_a_read_of_what_was_given_back_is_found() -> None:
    """The proof proves: a scheduler that lets go one page too early fails in that step."""
    run = WindowedRun("chunk", window=WINDOW, window_slots=200)
    run.submit([5] * 20, max_new_tokens=20, ignore_eos=True)
    window: Any = run.scheduler._memory.window
    window.tokens = WINDOW - 2
    with pytest.raises(SimulationError, match="given back"):
        run.drive(1)


def test_a_pool_too_small_for_one_request_is_refused_at_start() -> None:
    limits = WorkerLimits(
        max_rows=3,
        max_context=64,
        total_slots=128,
        page_size=4,
        vocab_size=100,
        max_tokens=64,
        window=8,
        window_slots=most_held(8, 4, 17) - 4,
    )
    config = SchedulerConfig(context_length=64, vocab_size=100, max_running_requests=2, max_prefill_tokens=16)
    with pytest.raises(ValueError, match="window layers"):
        check_limits(config, limits)
