"""The scheduler's own time, without a model: CPU of a decode step, waiting requests, a long cached prompt, and how much of it
the event loop `overlap` hides behind a worker that computes elsewhere.

    python benchmarks/scheduler.py [--json] [--rounds N] [--wait SECONDS]

Every figure is the median over the rounds; the sides of a ratio are measured in turn (A B A B ...). CPU is that of the
scheduler's thread, less what the worker without a model takes of it. Messages are encoded as between processes.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from figures import Figure, figure_of, over, ratio, report
from machine import machine_facts
from null_worker import NullWorker
from rig import PAGE, PROMPT, VOCAB, Rig

from jackfield.hookspecs import (
    CacheKey,
    ModelWorker,
    ProcessInfo,
    WorkerLimits,
)
from jackfield.managers.scheduler.hints import PrefixHints
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.stack.loading.load import LoadedStack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.observers import ObserverHub
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.overlap import OverlapLoop
from jackfield_scheduler_policies.dfs_weight import DepthFirstByWeight
from jackfield_scheduler_policies.lpm import LongestPrefixMatch, LpmOptions

PACKAGES = ("jackfield", "jackfield_cache_prefix", "jackfield_scheduler_loops", "jackfield_scheduler_policies")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """running: of the decode steps; steps: of a round; waiting: requests; long, tail: tokens of the cached prompt, and how
    many of them are not cached; prefixes: of `PROMPT` tokens in the large cache; device: seconds of the device-like worker's
    step."""

    running: tuple[int, ...] = (64, 256, 1024)
    steps: int = 80
    waiting: int = 2000
    long: int = 100_000
    tail: int = 96
    prefixes: int = 20_000
    device: float = 0.005

    @property
    def middle(self) -> int:
        return self.running[len(self.running) // 2]


QUICK = Sizes(running=(2, 4, 8), steps=4, waiting=10, long=1600, tail=16, prefixes=30, device=0.001)


class Bench:
    def __init__(self, sizes: Sizes, rounds: int) -> None:
        self.sizes = sizes
        self.rounds = rounds
        self._random = random.Random(3)
        self._new = (rounds + 2) * (sizes.steps + 3) + 16

    def decoding(self, running: int, waiting: int = 0, **parts: Any) -> Rig:
        return Rig(running=running, context=PROMPT + self._new, **parts).fill(running, waiting, self._new)

    def figures(self) -> Iterator[tuple[str, Figure]]:
        targets = dict(zip(self.sizes.running, ("<= 0.3", "<= 0.8", "<= 2.5"), strict=True))
        per_request = {}
        for running in self.sizes.running:
            rig = self.decoding(running)
            values = [rig.step_cpu(self.sizes.steps) for _ in range(self.rounds)]
            what = f"scheduler CPU of a decode step with {running} running"
            yield f"decode_step_{running}", figure_of(what, "ms", values, targets[running])
            per_request[running] = [1e3 * value / running for value in values]
        some, many = self.sizes.running[1:]
        what = f"scheduler CPU a running request of a decode step with {many} running, over {some}: linear or better"
        yield "linear_in_running", ratio(what, per_request[some], per_request[many], over, "<= 1.05", "us a request")
        yield f"waiting_{self.sizes.waiting}_fcfs", self._waiting()
        yield "decision_record", self._decisions()
        yield "observers_absent", self._observers()
        yield "large_cache", self._large_cache()
        yield "large_cache_evicting", self._evicting()
        yield from self._prefix_hints()
        yield from self._cached()
        yield "refused_long", self._refused()
        yield from self._overlap()

    def step_by_step(self, one: Rig, other: Rig) -> tuple[list[float], list[float]]:
        """Milliseconds of a step of each, a round: the median over steps that were taken in turn, so that whatever slows the
        machine down for a while slows down both; each goes first every other time, because to be the second is 2 to 4 %
        cheaper."""
        a, b = [], []
        for _ in range(self.rounds):
            times: tuple[list[float], list[float]] = [], []
            for turn in range(self.sizes.steps):
                for side in (0, 1) if turn % 2 else (1, 0):
                    times[side].append((one, other)[side].step_cpu(1))
            a.append(statistics.median(times[0]))
            b.append(statistics.median(times[1]))
        return a, b

    def _waiting(self) -> Figure:
        s = self.sizes
        without, beside = self.decoding(s.middle), self.decoding(s.middle, s.waiting)
        a, b = self.step_by_step(without, beside)
        what = f"scheduler CPU of a decode step with {s.middle} running and {s.waiting} waiting under fcfs, over none waiting"
        return ratio(what, a, b, over, "<= 1.05", "ms")

    def _decisions(self) -> Figure:
        s = self.sizes
        without, kept = self.decoding(s.running[0], decision_steps=0), self.decoding(s.running[0])
        a, b = self.step_by_step(without, kept)
        what = f"scheduler CPU of a decode step with {s.running[0]} running and the record of decisions, over none kept"
        return ratio(what, a, b, over, "<= 1.03", "ms")

    def _observers(self) -> Figure:
        """What a server has without any observer: a hub that is asked and calls nobody."""
        s = self.sizes
        process = ProcessInfo(role="inline", pid=os.getpid(), stack_hash="")
        hub = ObserverHub(LoadedStack(ResolvedStack(plugins=()), "inline", ()), FaultLedger(), process)
        without, beside = self.decoding(s.running[0]), self.decoding(s.running[0], observers=hub)
        a, b = self.step_by_step(without, beside)
        what = f"scheduler CPU of a decode step with {s.running[0]} running and a hub without observers, over no hub"
        return ratio(what, a, b, over, "<= 1.01", "ms")

    def _large_cache(self) -> Figure:
        s = self.sizes
        small, large = self.decoding(s.middle), self.decoding(s.middle)
        large.store(s.prefixes, owned=False)
        a, b = self.step_by_step(small, large)
        what = (
            f"scheduler CPU of a decode step with {s.middle} running and {s.prefixes} prefixes of {PROMPT} tokens in the "
            "cache, over none"
        )
        return ratio(what, a, b, over, "<= 1.05", "ms")

    def _evicting(self) -> Figure:
        """Short requests one after the other, each of which evicts as much as it stores; as many tokens in the pool as in
        the cache."""
        s = self.sizes

        def full(prefixes: int) -> Rig:
            rig = Rig(running=1, context=2 * PROMPT, slots=(prefixes + 1) * PROMPT)
            rig.store(prefixes, owned=True)
            return rig

        def turn(rig: Rig) -> float:
            times = []
            for _ in range(s.steps):
                rig.submit(rig.ids(PROMPT), 1)
                rig.scheduler.ingest()
                times.append(rig.cpu(rig.loop.step))
                rig.drain()
            return statistics.median(times)

        small, large = full(max(1, s.prefixes // 100)), full(s.prefixes)
        a, b = [], []
        for _ in range(self.rounds):
            a.append(turn(small))
            b.append(turn(large))
        what = (
            f"scheduler CPU of a request of {PROMPT} tokens that evicts as many, {s.prefixes} prefixes of {PROMPT} tokens in "
            f"the cache, over a hundredth"
        )
        return ratio(what, a, b, over, "<= 1.1", "ms")

    def _prefix_hints(self) -> Iterator[tuple[str, Figure]]:
        """What a step pays for the prefix hints of a long queue when the cache has just changed, and for ordering by them."""
        s = self.sizes
        rig = self.decoding(s.middle, s.waiting)
        waiting, memory = rig.scheduler._waiting, rig.scheduler._memory
        for request in waiting.table["request"].tolist():  # of each, the cache holds none to all but a page
            length = self._random.randrange(PROMPT // PAGE) * PAGE
            key = CacheKey(namespace=request.namespace, tokens=request.prompt[:length])
            lease = memory._cache.acquire(key, length)
            memory._cache.commit(lease, key, np.arange(PAGE, PAGE + length, dtype=np.int32), final=True)
            memory._cache.release(lease)
        hints = PrefixHints(frozenset({"cached_tokens", "forest"}), waiting, memory)
        policy, view = LongestPrefixMatch(LpmOptions(max_queue=s.waiting)), rig.scheduler._view()
        weigh, forest = DepthFirstByWeight(), replace(view, forest=hints.forest())

        def change(work: Callable[[], Any]) -> float:
            times = []
            for _ in range(s.steps):
                memory.changes += 1
                times.append(rig.cpu(work))
                order = policy.order(waiting.table.view, view)
                hints.ordered(np.arange(len(waiting)) if order is None else order)
            return statistics.median(times)

        many = f"{s.waiting} waiting"
        for name, what, work, target in (
            ("hints", "renewing prefix hints after a change of the cache", hints.renew, "<= 2"),
            ("forest", "the forest of prefixes after a change of the cache", hints.forest, "<= 2"),
            ("lpm_order", "the order of lpm", lambda: policy.order(waiting.table.view, view), "<= 1"),
            ("dfs_weight_order", "the order of dfs-weight", lambda: weigh.order(waiting.table.view, forest), "<= 1"),
        ):
            values = [change(work) for _ in range(self.rounds)]
            yield f"waiting_{s.waiting}_{name}", figure_of(f"scheduler CPU of {what}, {many}", "ms", values, target)

    def _refused(self) -> Figure:
        """A decode step of one, with a long cached prompt at the head of the queue whose tail does not fit; over one with a
        short prompt there that does not fit for its outputs. If the long one were looked up, it would show."""
        s = self.sizes

        def decoding() -> Rig:
            pool = (s.long + 1024) // PAGE * PAGE
            rig = Rig(running=2, context=s.long + 64, slots=pool, conservativeness=11.0)
            rig.submit(prefix, 1)
            while rig.scheduler.state().steps < 1 or rig.scheduler.state().running:
                rig.step()
            rig.submit(rig.ids(PROMPT), 4096)
            rig.step()
            rig.step()
            return rig

        prefix = np.random.default_rng(2).integers(8, VOCAB, s.long - s.tail).tolist()
        short, long = decoding(), decoding()
        short.submit(short.ids(PROMPT), s.long)
        long.submit(prefix + long.ids(s.tail), 1)
        a, b = self.step_by_step(short, long)
        if (short.scheduler.state().waiting, long.scheduler.state().waiting) != (1, 1):
            raise SystemExit("a request that should not fit does")
        what = f"scheduler CPU of a decode step beside a refused prompt of {s.long} tokens, over one of {PROMPT}"
        return ratio(what, a, b, over, "<= 1.05", "ms")

    def _cached(self) -> Iterator[tuple[str, Figure]]:
        s = self.sizes
        for nodes, target in ((1, "<= 0.4"), (100, "<= 1")):
            times = [self._match_and_insert(nodes) for _ in range(self.rounds)]
            what = (
                f"match + insert of {s.long} tokens in the radix cache, all but {s.tail} of them there in {nodes} nodes"
            )
            yield f"match_insert_{nodes}", figure_of(what, "ms", times, target)
        rig = Rig(running=1, context=s.long + 64)
        prefix = rig.ids(s.long - s.tail)
        taken, admitted = [], []
        for turn in range(10 * self.rounds + 2):
            rig.submit(prefix + rig.ids(s.tail), 1)
            intake = rig.cpu(rig.scheduler.ingest)
            batch = None

            def admit() -> None:
                nonlocal batch
                batch = rig.scheduler.next_batch()
                rig.scheduler.sample(rig.scheduler.launch(batch))  # type: ignore[arg-type]

            admission = rig.cpu(admit)
            rig.scheduler.commit(rig.scheduler._in_flight[0])
            rig.drain()
            if turn > 1:  # the first computes the prefix, the second splits its node
                taken.append(intake)
                admitted.append(admission)
        what = f"taking in a request of {s.long} tokens: decode the message, check it, queue it"
        yield "intake_long", figure_of(what, "ms", taken)
        what = f"admitting a prompt of {s.long} tokens of which {s.tail} are not cached: decide and launch"
        yield "admit_cached_long", figure_of(what, "ms", admitted, "<= 1")

    def _match_and_insert(self, nodes: int) -> float:
        s, cache = self.sizes, RadixCache(PAGE)
        random = np.random.default_rng(nodes)
        prefix = random.integers(8, VOCAB, s.long - s.tail, dtype=np.int32)
        slots = np.arange(PAGE, PAGE + s.long, dtype=np.int32)
        ends = np.linspace(0, len(prefix), nodes + 1).astype(int)[1:] // PAGE * PAGE
        for end in ends.tolist():
            key = CacheKey(namespace=b"", tokens=prefix[:end])
            lease = cache.acquire(key, end)
            cache.commit(lease, key, np.concatenate([lease.slots, slots[lease.length : end]]), final=True)
            cache.release(lease)
        times = []
        for turn in range(12):
            tail = random.integers(8, VOCAB, s.tail, dtype=np.int32)
            key = CacheKey(namespace=b"", tokens=np.concatenate([prefix, tail]))
            began = time.perf_counter()
            lease = cache.acquire(key, s.long - 1)
            middle = time.perf_counter()
            row = np.concatenate([lease.slots, slots[: s.long - lease.length] + 10 * s.long + turn * s.long])
            again = time.perf_counter()
            cache.commit(lease, key, row, final=True)
            times.append((time.perf_counter() - again + middle - began) * 1e3)
            cache.release(lease)
        return statistics.median(times)

    def _overlap(self) -> Iterator[tuple[str, Figure]]:
        """The time a step takes beyond the device's own: with `overlap`, what is left of it of that with `normal`."""
        for name, blocking, where in (
            ("overlap_device", False, "a worker that computes elsewhere"),
            ("overlap_thread", True, "a worker that computes in `launch`, put on its own thread"),
        ):
            with self._side_by_side(blocking) as (normal, overlap):
                a, b = [], []
                for _ in range(self.rounds):
                    a.append((normal.step_wall(self.sizes.steps) - self.sizes.device) * 1e3)
                    b.append((overlap.step_wall(self.sizes.steps) - self.sizes.device) * 1e3)
            what = (
                f"share of the time beyond the device's {self.sizes.device * 1e3:g} ms a step that `overlap` hides, "
                f"{self.sizes.middle} running, {where}"
            )
            yield name, ratio(what, a, b, lambda x, y: 1 - y / x, ">= 0.5", "ms a step beyond the device's")
            if blocking:
                what = f"wall time of a step with `overlap`, over `normal`, {self.sizes.middle} running, {where}"
                c, d = ([value + self.sizes.device * 1e3 for value in side] for side in (a, b))
                yield "overlap_slowdown", ratio(what, c, d, over, "<= 1.03", "ms a step")

    @contextmanager
    def _side_by_side(self, blocking: bool) -> Iterator[tuple[Rig, Rig]]:
        def plain(limits: WorkerLimits) -> ModelWorker:
            return NullWorker(limits, self.sizes.device, blocking=blocking)

        def threaded(limits: WorkerLimits) -> ModelWorker:
            return ThreadedWorker(plain(limits)) if blocking else plain(limits)

        running = self.sizes.middle
        rigs = (
            self.decoding(running, make_worker=plain),
            self.decoding(running, make_worker=threaded, make_loop=OverlapLoop),
        )
        try:
            yield rigs
        finally:
            for rig in rigs:
                rig.loop.settle()
                rig.worker.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--rounds", type=int, default=5, help="how often each figure is measured (default 5)")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds to wait for a quiet machine (default 120)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    arguments = parser.parse_args(argv)
    machine = machine_facts(arguments.wait)
    report(
        machine,
        dict(Bench(QUICK if arguments.quick else Sizes(), arguments.rounds).figures()),
        arguments.json,
        PACKAGES,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
