"""What must hold between any two phases of the scheduler. Reads everything, changes nothing; slow on purpose."""

from __future__ import annotations

import logging

import numpy as np

from jackfield.managers.requests.capacity import kv_tokens
from jackfield.managers.scheduler.memory import KVMemory
from jackfield.managers.scheduler.new_token_ratio import NewTokenRatio
from jackfield.managers.scheduler.queue import WaitingQueue
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.running import RunningTable
from jackfield.managers.scheduler.window import Window
from jackfield.mem_cache.accounting import round_up

log = logging.getLogger(__name__)


class InvariantViolation(AssertionError):
    """The scheduler's state contradicts itself. The text says all that is wrong."""


class InvariantChecker:
    def __init__(
        self,
        *,
        live: dict[str, Request],
        waiting: WaitingQueue,
        running: RunningTable,
        memory: KVMemory,
        ratio: NewTokenRatio,
    ) -> None:
        self._live = live
        self._waiting = waiting
        self._running = running
        self._memory = memory
        self._ratio = ratio

    def check(self) -> None:
        """Raises InvariantViolation."""
        problems = [*self._tables(), *self._slots()]
        if not len(self._waiting) and not len(self._running):
            problems += self._idle()
        try:
            self._memory.check_cache()
        except AssertionError as error:
            problems.append(f"the cache says: {error}")
        if problems:
            raise InvariantViolation("; ".join(problems))

    def _tables(self) -> list[str]:
        problems = []
        waiting, running = self._waiting.table, self._running
        gated = list(self._waiting.gated.values())
        requests = [*waiting["request"].tolist(), *running["request"].tolist(), *gated]
        if {id(request) for request in requests} != {id(request) for request in self._live.values()}:
            problems.append(f"{len(requests)} requests in the tables, {len(self._live)} in the registry, or others")
        if len({request.uid for request in requests}) != len(requests):
            problems.append("a request stands in the tables twice")
        for table, state in ((waiting, RequestState.WAITING), (running, RequestState.RUNNING)):
            for request, uid in zip(table["request"].tolist(), table["uid"].tolist(), strict=True):
                if request.uid != uid or request.state is not state:
                    problems.append(
                        f"{request.rid}: uid {request.uid} and {request.state} stand in the {state} row of {uid}"
                    )
                if (request.lease is not None) != (state is RequestState.RUNNING):
                    problems.append(f"{request.rid}: {state.value} with lease {request.lease}")
        for request in gated:
            if request.state is not RequestState.WAITING or request.lease is not None:
                problems.append(f"{request.rid} waits at a gate as {request.state.value} with lease {request.lease}")
        known = np.array([len(request.known_key.tokens) for request in waiting["request"].tolist()], dtype=np.int64)
        outputs = np.array([len(request.output_ids) for request in waiting["request"].tolist()], dtype=np.int64)
        if (waiting["output_tokens"] != outputs).any() or (waiting["sampled"] != outputs).any():
            problems.append("waiting requests whose columns and tokens differ")
        if (known != waiting["prompt_tokens"] + outputs).any():
            problems.append("waiting requests whose cache key is not all that they know")
        if any(waiting[name].any() for name in ("computed", "written", "allocated", "held_tokens", "row")):
            problems.append("a waiting request holds something")
        if (np.diff(waiting["uid"]) <= 0).any():
            problems.append("the waiting requests do not stand in arrival order")
        rows = running["row"]
        if not np.array_equal(running.position[rows], np.arange(len(running))) or len(np.unique(rows)) != len(rows):
            problems.append("the index of rows does not match the running table")
        if self._memory.rows.available() + len(running) != self._memory.rows.max_rows - 1:
            problems.append(f"{len(running)} rows are in use, but {self._memory.rows.available()} are free")
        return problems

    def _slots(self) -> list[str]:
        problems: list[str] = []
        memory, running = self._memory, self._running
        owned = [np.empty(0, dtype=np.int32)]
        for i, request in enumerate(running["request"].tolist()):
            allocated, row, lease = int(running["allocated"][i]), request.row, request.lease
            if lease is None:
                continue  # told above
            slots = memory.rows.table[row, :allocated]
            if not np.array_equal(slots[: lease.length], lease.slots[: lease.length]):
                problems.append(f"{request.rid}: its row does not hold the slots of its lease")
            owned.append(slots[lease.length :])
            computed, written = int(running["computed"][i]), int(running["written"][i])
            worst = round_up(kv_tokens(len(request.prompt), request.max_new_tokens), memory.page_size)
            numbers = {
                "held": (int(running["held_tokens"][i]), allocated - lease.length),
                "goal": (int(running["goal"][i]), len(request.known_key.tokens)),
                "outputs": (int(running["output_tokens"][i]), len(request.output_ids)),
            }
            problems += [f"{request.rid}: {name} is {a}, not {b}" for name, (a, b) in numbers.items() if a != b]
            if not lease.length <= written <= computed <= allocated <= worst:
                problems.append(
                    f"{request.rid}: lease {lease.length} <= written {written} <= computed {computed} <= "
                    f"allocated {allocated} <= worst case {worst} does not hold"
                )
        mine = np.concatenate(owned)
        if len(np.unique(mine)) != len(mine):
            problems.append("two requests own one slot")
        if not memory.allocator.in_use(mine).all():
            problems.append("a running request owns a slot that is free")
        accounts = memory.accounts(len(mine))
        if (problem := accounts.problem()) is not None:
            problems.append(problem)
        if memory.window is not None:
            problems += self._window(memory.window)
        promised = running.promised(1, memory.page_size)
        # Slots under a load come back; until then, whoever runs alone may have been promised them too.
        if self._ratio.never_retracts and not memory.loading and accounts.free + accounts.evictable < promised:
            problems.append(f"{promised} slots are promised, {accounts.free} free and {accounts.evictable} evictable")
        return problems

    def _window(self, window: Window) -> list[str]:
        """The same of the window pool."""
        problems: list[str] = []
        memory, running, pool = self._memory, self._running, window.pool
        held = 0
        for i, request in enumerate(running["request"].tolist()):
            allocated, floor = int(running["allocated"][i]), int(running["floor"][i])
            there = pool.has(memory.rows.table[request.row, :allocated])
            own = max(0, allocated - int(running["held_tokens"][i]))
            held += int(there[own:].sum())
            if not there[floor:].all():
                problems.append(f"{request.rid}: it has lost KV of window layers behind {floor}")
            if there[own:floor].any():
                problems.append(f"{request.rid}: it keeps KV of window layers before {floor}")
            if floor > window.floor(int(running["written"][i])):
                problems.append(f"{request.rid}: floor {floor}, and {running['written'][i]} tokens are written")
        if not memory.allocator.in_use(np.flatnonzero(pool.page_of).astype(np.int32) * memory.page_size).all():
            problems.append("a free slot has KV of window layers")
        accounts = window.accounts(held, memory.sizes())
        problems += [
            f"window pool: {problem}" for problem in (accounts.problem(), pool.problem()) if problem is not None
        ]
        promised = int(window.promises(running, 1).sum())
        if self._ratio.never_retracts and accounts.free + accounts.evictable < promised:
            problems.append(
                f"window pool: {promised} slots are promised, {accounts.free} free and {accounts.evictable} evictable"
            )
        return problems

    def _idle(self) -> list[str]:
        if self._memory.loading:
            return []  # a load whose request has ended is brought to its end, under a lease
        protected = self._memory.sizes().protected
        return [f"nothing is open, but {protected} slots are under a lease"] if protected else []


class InvariantWatch:
    """When the check runs, and what a failure of it does.

    mode      "step": after every commit and when idle, and a failure is raised; "idle": when idle, and a failure is counted
              and logged; anything else: not by itself
    failures  that were counted
    """

    def __init__(self, checker: InvariantChecker, mode: str) -> None:
        self.failures = 0
        self._checker = checker
        self._mode = mode

    def check(self) -> None:
        """Now, whatever the mode. Raises InvariantViolation."""
        self._checker.check()

    def committed(self) -> None:
        if self._mode == "step":
            self.check()

    def idle(self) -> None:
        if self._mode == "step":
            self.check()
        elif self._mode == "idle":
            try:
                self.check()
            except InvariantViolation:
                # A server that still answers is worth more than one that proves a point by dying.
                self.failures += 1
                log.exception("the idle check failed")
