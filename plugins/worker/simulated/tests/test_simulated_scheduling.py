"""The scheduler, a cache plugin and the simulated worker together: the worker proves each slot, the answers must be those
of each request alone (B55, B57, B61)."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import (
    Amounts,
    CacheContext,
    CacheKey,
    CacheSizes,
    Freed,
    Lease,
    PrefixCache,
    Shard,
    WorkerContext,
)
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.chunk import jackfield_prefix_cache as make_chunk
from jackfield_cache_prefix.radix import jackfield_prefix_cache as make_radix
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.worker import SimulatedWorker

CACHES = {"radix": make_radix, "chunk": make_chunk}
VOCAB = 1000
CONTEXT = 96


def make_worker(page_size: int, total: int) -> SimulatedWorker:
    context = WorkerContext(
        kind="worker",
        name="simulated",
        instance="simulated",
        shard=Shard(),
        device="cpu",
        dtype="float32",
        seed=0,
        page_size=page_size,
        max_running=8,
        max_total_tokens=total,
        max_context=CONTEXT,
        max_tokens=64,
        vocab_size=VOCAB,
    )
    return SimulatedWorker(context, SimulatedOptions(verify="all"))


def make_run(cache: str, page_size: int, total: int, **config: Any) -> SchedulerHarness:
    made: PrefixCache = CACHES[cache](
        CacheContext(kind="cache", name=cache, instance=cache, page_size=page_size, total_slots=total)
    )
    worker: Any = make_worker(page_size, total)
    return SchedulerHarness(worker=worker, cache=made, context_length=CONTEXT, vocab_size=VOCAB, **config)


def turn(run: SchedulerHarness, in_flight: deque[Any], depth: int) -> None:
    """One turn of a loop with at most `depth` steps in flight."""
    scheduler = run.scheduler
    scheduler.ingest()
    scheduler.poll()
    batch = scheduler.next_batch()
    if batch is not None:
        step = scheduler.launch(batch)
        scheduler.sample(step)
        in_flight.append(step)
    while in_flight and (len(in_flight) >= depth or batch is None):
        run.clock.advance(1.0)
        scheduler.commit(in_flight.popleft())
    if batch is None:
        scheduler.idle()
    run.collect()


def walk(run: SchedulerHarness, seed: int, requests: int, depth: int) -> None:
    """Random requests over few prompts, some aborted on the way."""
    rng = np.random.default_rng(seed)
    in_flight: deque[Any] = deque()
    sent: list[str] = []
    while True:
        if len(sent) < requests and rng.random() < 0.4:
            prompt = [letter for letter in rng.integers(1, 3, rng.integers(1, 5)).tolist() for _ in range(11)]
            prompt = prompt[: int(rng.integers(1, len(prompt) + 1))]
            sent.append(run.submit(prompt, max_new_tokens=int(rng.integers(0, 12)), ignore_eos=True))
        if sent and rng.random() < 0.1:
            run.abort(sent[-int(rng.integers(1, 5)) % len(sent)])  # one of the last few, so that most are still open
        turn(run, in_flight, depth)
        state = run.scheduler.state()
        if len(sent) == requests and not state.waiting and not state.running and not in_flight:
            return


def alone(prompt: list[int], count: int) -> list[int]:
    run = make_run("chunk", 1, 256)
    rid = run.submit(prompt, max_new_tokens=count, ignore_eos=True)
    run.run()
    return run.answers[rid].ids


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("cache", list(CACHES))
def test_b55_b61_answers_are_those_of_each_request_alone(cache: str, page_size: int, depth: int) -> None:
    run = make_run(cache, page_size, 192, max_prefill_tokens=32)
    walk(run, seed=page_size + depth, requests=80, depth=depth)
    run.assert_at_rest()
    cached_tokens = 0
    known: dict[tuple[int, ...], list[int]] = {}
    for rid, answer in run.answers.items():
        prompt = tuple(run.prompts[rid])
        if prompt not in known:
            known[prompt] = alone(list(prompt), 12)
        assert answer.finish is not None
        assert answer.ids == known[prompt][: len(answer.ids)]
        cached_tokens += answer.last.cached_tokens
    assert len(run.answers) == 80
    assert sum(answer.finish.type == "abort" for answer in run.answers.values() if answer.finish) > 3
    assert (cached_tokens > 100) == (cache == "radix")


class MixesUpSlots(RadixCache):
    """A match names the right slots in the wrong order."""

    def acquire(self, key: CacheKey, limit: int) -> Lease:
        lease = super().acquire(key, limit)
        lease.slots = np.roll(lease.slots, 1)
        return lease


class EvictsLeases(RadixCache):
    """What is leased counts as evictable and is given away."""

    def sizes(self) -> CacheSizes:
        real = super().sizes()
        return CacheSizes(evictable=real.evictable + real.protected, protected=0)

    def evict(self, need: Amounts) -> Freed:
        held = max(self.leases, key=lambda lease: lease.length).slots
        return Freed(slots=held[: need.slots].copy())


def run_on(cache: PrefixCache, total: int) -> SchedulerHarness:
    worker: Any = make_worker(1, total)
    return SchedulerHarness(
        worker=worker, cache=cache, context_length=CONTEXT, vocab_size=VOCAB, check_invariants="off"
    )


def test_a_cache_that_mixes_up_slots_is_caught() -> None:
    run = run_on(MixesUpSlots(1), 192)
    run.submit([1, 2, 3, 4], max_new_tokens=1)
    run.run()
    run.submit([1, 2, 3, 4], max_new_tokens=1)
    with pytest.raises(SimulationError, match="holds another prefix"):
        run.run()


def test_b55_a_cache_that_evicts_what_is_leased_is_caught() -> None:
    """B55: the second request is given slots that the first one still reads."""
    run = run_on(EvictsLeases(1), 64)
    run.submit([1] * 40, max_new_tokens=16)
    run.turn()
    run.submit([2] * 30, max_new_tokens=1)
    with pytest.raises(SimulationError, match="which the open rows use 2 times"):
        run.run()
