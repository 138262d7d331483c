"""A scheduler over the simulated worker with a window pool: each read of window layers is proven in every step."""

from __future__ import annotations

from collections import deque
from typing import Any

from jackfield.hookspecs import CacheContext, PrefixCache, Shard, WorkerContext
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.chunk import jackfield_prefix_cache as make_chunk
from jackfield_cache_prefix.options import Eviction, RadixOptions
from jackfield_cache_prefix.radix import jackfield_prefix_cache as make_radix
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.worker import SimulatedWorker

VOCAB = 1000
CONTEXT = 128


def make_cache(name: str, page_size: int, total: int, window: int | None) -> PrefixCache:
    """name: "chunk", or the radix cache's strategy."""
    context: dict[str, Any] = {"kind": "cache", "page_size": page_size, "total_slots": total, "window": window}
    if name == "chunk":
        return make_chunk(CacheContext(name=name, instance=name, **context))
    eviction: Any = name
    checked: Eviction = eviction
    return make_radix(CacheContext(name="radix", instance="radix", options=RadixOptions(eviction=checked), **context))


class WindowedRun(SchedulerHarness):
    """window_slots: slots of the window pool; window None: every layer keeps everything."""

    def __init__(
        self,
        cache: str,
        *,
        window: int | None,
        total: int = 256,
        window_slots: int | None = None,
        page_size: int = 1,
        verify: Any = "all",
        **settings: Any,
    ) -> None:
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
            max_tokens=256,
            vocab_size=VOCAB,
            window_pool=True,
        )
        worker: Any = SimulatedWorker(
            context, SimulatedOptions(verify=verify, window=window, window_tokens=window_slots)
        )
        self.cache = make_cache(cache, page_size, total, window)
        self.peak = 0
        super().__init__(worker=worker, cache=self.cache, context_length=CONTEXT, vocab_size=VOCAB, **settings)

    def advance(self, in_flight: deque[Any], depth: int) -> None:
        """One turn of a loop with at most `depth` steps in flight."""
        scheduler = self.scheduler
        scheduler.ingest()
        scheduler.poll()
        batch = scheduler.next_batch()
        if batch is not None:
            step = scheduler.launch(batch)
            scheduler.sample(step)
            in_flight.append(step)
            scheduler.check_invariants()
        self.peak = max(self.peak, self.held())
        while in_flight and (len(in_flight) >= depth or batch is None):
            self.clock.advance(1.0)
            scheduler.commit(in_flight.popleft())
        self.cache.check()
        self.collect()

    def held(self) -> int:
        """Slots of the window pool that are taken and could not be had."""
        memory = self.scheduler._memory
        return 0 if memory.window is None else memory.window.pool.total - memory.window.available(memory.sizes())

    def drive(self, depth: int, turns: int = 4000) -> None:
        """Until nothing is open."""
        in_flight: deque[Any] = deque()
        for _ in range(turns):
            self.advance(in_flight, depth)
            state = self.scheduler.state()
            if not state.waiting and not state.running and not in_flight:
                return
        raise AssertionError(f"still not done: {self.scheduler.state()}")
