"""A scheduler to measure: the real one, with messages encoded as between processes, over a worker without a model."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from null_worker import NullWorker

from jackfield.hookspecs import (
    CacheKey,
    EventLoop,
    ModelWorker,
    SchedulerPhases,
    StepOutcome,
    WorkerLimits,
)
from jackfield.ipc.channels import InMemoryChannel
from jackfield.ipc.messages import SamplingParams, ToDetokenizer, TokenizedGenerateRequest, ToMain, ToScheduler
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.request import cache_namespace
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.managers.scheduler.watchers import Observers
from jackfield.observability.clock import MonotonicClock
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.normal import NormalLoop
from jackfield_scheduler_policies.fcfs import FirstComeFirstServed

VOCAB = 50_000
PROMPT = 64
PAGE = 16


class Rig:
    """A scheduler with everything that it has in a server but processes: radix cache, fcfs, no observer."""

    def __init__(
        self,
        *,
        running: int,
        context: int,
        make_loop: Callable[[SchedulerPhases], EventLoop] = NormalLoop,
        make_worker: Callable[[WorkerLimits], ModelWorker] = NullWorker,
        decision_steps: int = 1024,
        slots: int = 0,
        conservativeness: float = 1.0,
        observers: Observers | None = None,
    ) -> None:
        """slots: of the pool; 0: more than enough. observers: None: not even a hub that could call some."""
        limits = WorkerLimits(
            max_rows=running + 1,
            max_context=context,
            total_slots=slots or 2 * running * -(-context // PAGE) * PAGE,
            page_size=PAGE,
            vocab_size=VOCAB,
            max_tokens=max(running * PROMPT, context),
        )
        self.worker = make_worker(limits)
        self.inbox = InMemoryChannel(ToScheduler)
        self.outputs = InMemoryChannel(ToDetokenizer)
        self.scheduler = Scheduler(
            SchedulerConfig(
                context_length=context,
                vocab_size=VOCAB,
                max_running_requests=running,
                max_prefill_tokens=limits.max_tokens,
                check_invariants="off",
                decision_steps=decision_steps,
                schedule_conservativeness=conservativeness,
            ),
            worker=self.worker,
            cache=RadixCache(PAGE),
            policy=FirstComeFirstServed(),
            clock=MonotonicClock(),
            inbox=self.inbox,
            to_detokenizer=self.outputs,
            to_main=InMemoryChannel(ToMain),
            observers=observers,
        )
        self.loop = make_loop(self.scheduler)
        self._random = np.random.default_rng(1)
        self._rids = itertools.count()

    def ids(self, count: int) -> list[int]:
        found: list[int] = self._random.integers(8, VOCAB, count).tolist()
        return found

    def store(self, prefixes: int, *, owned: bool) -> None:
        """Put so many prompts into the cache. owned: with slots of the pool; else with the same ones, which nothing evicts."""
        memory = self.scheduler._memory
        for _ in range(prefixes):
            tokens = np.array(self.ids(PROMPT), dtype=np.int32)
            key = CacheKey(namespace=cache_namespace("0", 0, None), tokens=tokens)
            lease = memory._cache.acquire(key, PROMPT)
            slots = (
                np.arange(PAGE, PAGE + PROMPT, dtype=np.int32) if not owned else memory.allocator.alloc(PROMPT // PAGE)
            )
            memory._cache.commit(lease, key, slots, final=True)
            memory._cache.release(lease)
        memory.changes += 1

    def submit(self, prompt: list[int], new: int) -> None:
        sampling = SamplingParams(temperature=0.0, max_new_tokens=new, ignore_eos=True)
        self.inbox.send(TokenizedGenerateRequest(rid=str(next(self._rids)), input_ids=prompt, sampling=sampling))

    def fill(self, running: int, waiting: int, new: int) -> Rig:
        """Until so many requests decode, and so many wait for their places."""
        for _ in range(running + waiting):
            self.submit(self.ids(PROMPT), new)
        state = self.scheduler.state()
        while (state.running, state.waiting) != (running, waiting) or state.steps < 4:
            self.step()
            state = self.scheduler.state()
        return self

    def step(self) -> None:
        if self.loop.step() is not StepOutcome.RAN:
            raise SystemExit("nothing runs in the scheduler that is to be measured")
        self.drain()

    def drain(self) -> None:
        while self.outputs.receive() is not None:
            pass

    def cpu(self, work: Callable[[], Any]) -> float:
        """Milliseconds of this thread's CPU, less the worker's."""
        assert isinstance(self.worker, NullWorker)
        worker, began = self.worker.spent, time.thread_time()
        work()
        spent = time.thread_time() - began
        return (spent - (self.worker.spent - worker)) * 1e3

    def step_cpu(self, steps: int) -> float:
        times = []
        for _ in range(steps):
            times.append(self.cpu(self.loop.step))
            self.drain()
        return statistics.median(times)

    def step_wall(self, steps: int) -> float:
        """Seconds a step, with as many in flight before as after."""
        for _ in range(3):
            self.step()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) / steps
