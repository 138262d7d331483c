"""The way up, as a gate: a request whose prompt goes on in a tier where the prefix cache ends waits until that part is back.

First the blocks are fetched to the host, which holds no KV memory. Then slots are taken, if the pool has them to spare, the
copy is made, and the slots enter the cache by an ordinary commit. Whatever goes wrong, the request computes the rest itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from jackfield.hookspecs import Gate, GateAnswer, GateEvent, GateRequest, KVMover, Moved
from jackfield.managers.scheduler.loading import Loading
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.tiers.blocks import block_keys
from jackfield.managers.scheduler.tiers.runner import TierRunner
from jackfield.mem_cache.accounting import round_down

MAX_LOADS = 32
"""Requests that may wait for loads at once; one more computes its prompt."""

CountBlocks = Callable[[Sequence[bytes]], None]


@dataclass
class LoadCounts:
    """Loads that brought KV back, and its tokens; those that found the tier without it after all, no room, or failed."""

    loads: int = 0
    loaded_tokens: int = 0
    gone: int = 0
    no_room: int = 0
    failed: int = 0


@dataclass
class _Load:
    """first: number of the first block; parts: what came of each tier asked, in order; asked: blocks that each was asked for;
    names: of these tiers; given: tier -> positions of the prompt that came of it, begin and end."""

    request: GateRequest
    first: int
    parts: list[list[bytes] | None]
    asked: list[int]
    names: list[str]
    given: list[tuple[str, int, int]] = field(default_factory=list)
    loading: Loading | None = None
    cancelled: bool = False


class LoadGate(Gate):
    """count: told of the blocks of every request's prompt. promised: slots that running requests may still take."""

    def __init__(
        self,
        mover: KVMover,
        runners: Sequence[TierRunner],
        memory: KVMemory,
        *,
        fingerprint: bytes,
        block: int,
        count: CountBlocks,
        promised: Callable[[], int],
    ) -> None:
        self.counts = LoadCounts()
        self._mover = mover
        self._runners = list(runners)
        self._memory = memory
        self._fingerprint = fingerprint
        self._block = block
        self._count = count
        self._promised = promised
        self._loads: dict[int, _Load] = {}  # uid -> its load
        self._writes: dict[int, _Load] = {}  # ticket -> its load
        self._done: list[GateEvent] = []  # of copies
        self._given: dict[int, list[tuple[str, int, int]]] = {}  # uid -> what its load brought, until it is over
        self._fetched: SimpleQueue[tuple[int, int, list[bytes]]] = SimpleQueue()

    def enter(self, request: GateRequest) -> GateAnswer:
        key, block = request.key, self._block
        limit = round_down(len(key.tokens) - 1, self._memory.page_size)
        names = block_keys(self._fingerprint, key, len(key.tokens), block)
        self._count(names)
        names = names[: limit // block]
        if not names or len(self._loads) >= MAX_LOADS:
            return GateAnswer.OPEN
        cached = min(int(self._memory.peek([key])[0]), limit)
        first = cached // block
        plan = self._plan(names[first:])
        found = sum(len(part) for _, part in plan)
        if not plan or (first + found) * block - cached < plan[0][0].rule.min_load_tokens:
            return GateAnswer.OPEN
        load = _Load(
            request=request,
            first=first,
            parts=[None] * len(plan),
            asked=[len(part) for _, part in plan],
            names=[runner.name.partition(".")[2] for runner, _ in plan],
        )
        self._loads[request.uid] = load
        for number, (runner, part) in enumerate(plan):
            runner.get(part, _teller(self._fetched, request.uid, number))
        return GateAnswer.WAITING

    def poll(self) -> list[GateEvent]:
        """Fetches that have ended; the copies are told by `moved`."""
        events: list[GateEvent] = []
        while not self._fetched.empty():
            uid, number, blocks = self._fetched.get()
            load = self._loads.get(uid)
            if load is None:
                continue  # it was cancelled
            load.parts[number] = blocks
            if all(part is not None for part in load.parts) and not self._begin(load):
                del self._loads[uid]
                events.append(GateEvent(uid=uid))
        done, self._done = self._done, []
        return [*events, *done]

    def moved(self, moved: Moved) -> bool:
        """A copy has ended; False if it is none of these."""
        load = self._writes.pop(moved.ticket, None)
        if load is None or load.loading is None:
            return False
        if moved.error:
            self.counts.failed += 1
            self._memory.drop_load(load.loading)
        else:
            self.counts.loads += 1
            self.counts.loaded_tokens += len(load.loading.slots)
            self._memory.finish_load(load.loading)
        if not load.cancelled:
            if not moved.error:
                self._given[load.request.uid] = load.given
            del self._loads[load.request.uid]
            self._done.append(GateEvent(uid=load.request.uid))
        return True

    def cancel(self, uid: int) -> None:
        """A copy that is under way is brought to its end: its slots are not free before, and then the KV is there."""
        load = self._loads.pop(uid)
        load.cancelled = True

    def kept(self, uid: int, cached: int) -> dict[str, int]:
        """See `Tiers.kept`."""
        told: dict[str, int] = {}
        for name, begin, end in self._given.pop(uid, ()):
            if (tokens := min(end, cached) - begin) > 0:
                told[name] = told.get(name, 0) + tokens
        return told

    @property
    def pending(self) -> int:
        """Copies under way; they hold slots and leases."""
        return len(self._writes)

    def _plan(self, names: list[bytes]) -> list[tuple[TierRunner, list[bytes]]]:
        """Which tier is asked for which blocks: each by the first tier that has it, up to the first that none has."""
        plan: list[tuple[TierRunner, list[bytes]]] = []
        for name in names:
            runner = next((runner for runner in self._runners if runner.has(name)), None)
            if runner is None:
                break
            if plan and plan[-1][0] is runner:
                plan[-1][1].append(name)
            else:
                plan.append((runner, [name]))
        return plan

    def _begin(self, load: _Load) -> bool:
        """All that there is was fetched: take slots and copy. False if there is nothing to copy."""
        blocks: list[bytes] = []
        given: list[tuple[str, int, int]] = []
        for name, asked, part in zip(load.names, load.asked, load.parts, strict=True):
            begin = (load.first + len(blocks)) * self._block
            blocks += part or []
            given.append((name, begin, (load.first + len(blocks)) * self._block))
            if len(part or []) < asked:
                break
        load.parts = []
        base, end = load.first * self._block, (load.first + len(blocks)) * self._block
        if not blocks:
            self.counts.gone += 1
            return False
        loading = self._memory.begin_load(load.request.key, base, end, self._promised())
        if loading is None:
            self.counts.no_room += 1
            return False
        # What the cache held when the copy began is the cache's.
        own = loading.lease.length
        load.given = [(name, max(begin, own), stop) for name, begin, stop in given]
        data = np.frombuffer(b"".join(blocks), dtype=np.uint8).reshape(-1, self._mover.bytes_per_slot)
        load.loading = loading
        self._writes[self._mover.write(loading.slots, data[loading.lease.length - base :])] = load
        return True


def _teller(queue: SimpleQueue[tuple[int, int, list[bytes]]], uid: int, number: int) -> Callable[[list[bytes]], None]:
    return lambda blocks: queue.put((uid, number, blocks))
