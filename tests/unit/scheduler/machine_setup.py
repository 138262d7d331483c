"""What the scheduler's state machine runs on: one drawn choice of worker, cache, tiers, policy, gates and limits, all real but
for the model, and the tokens that the worker's pure function gives each request alone."""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from jackfield.hookspecs import (
    Amounts,
    DecodeTurn,
    FaultScope,
    Gate,
    GateAnswer,
    GateEvent,
    GateRequest,
    PolicyContext,
    PrefixCache,
    RequestFault,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    TierRule,
    WorkerLimits,
)
from jackfield.testing.page_cache import PageCache
from jackfield.testing.scheduler_fakes import FakeWorker, expected_tokens
from jackfield.testing.scheduler_harness import ArrivalOrder, SchedulerHarness
from jackfield.testing.scheduler_wide import WideWorker
from jackfield_cache_prefix.chunk_cache import ChunkCache
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_policies.edf import EdfOptions
from jackfield_scheduler_policies.priority import PriorityOptions
from jackfield_scheduler_policies.token_budget import TokenBudgetOptions
from jackfield_worker_simulated.hashing import PrefixHasher, mix
from tests.unit.scheduler.swapping import InstalledPolicies
from tests.unit.scheduler.tiered import CONTEXT, VOCAB, DictTier, TieredRun

STRICT_VOCAB = 40
EOS = 0
POLICIES: dict[str, list[str]] = {
    row["name"]: row.get("needs", [])
    for row in tomllib.loads(files("jackfield_scheduler_policies").joinpath("plugin.toml").read_text())["plugin"]
}
FAMILIES = ("page", "radix", "chunk", "tiers")


class Whimsical(SchedulePolicy):
    """Shuffles, drops and mixes by the step's seed."""

    def budget(self, view: SchedulerView) -> StepBudget:
        turns = tuple(DecodeTurn)
        return StepBudget(
            prefill_tokens=1 + view.seed % 40, decode=turns[view.seed % 3], partial_prefills=view.seed % 3
        )

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp]:
        rng = np.random.default_rng(view.seed)
        return rng.permutation(len(waiting))[: rng.integers(0, len(waiting) + 1)]

    def victims(
        self, running: RequestTable, need: Amounts, for_row: int | None, view: SchedulerView
    ) -> NDArray[np.intp]:
        rng = np.random.default_rng(view.seed)
        return rng.permutation(len(running))[: rng.integers(0, len(running) + 1)]


class MoodyGate(Gate):
    """Opens at once or late, refuses, fails on entry, in a wait or as a whole, and tells of requests that have gone."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._waiting: list[int] = []
        self._gone: list[int] = []

    def enter(self, request: GateRequest) -> GateAnswer:
        drawn = self._rng.random()
        if drawn < 0.03:
            raise RequestFault("nothing of that kind here", status_code=404)
        if drawn < 0.06:
            raise RuntimeError("the gate fails")
        if drawn < 0.5:
            return GateAnswer.OPEN
        self._waiting.append(request.uid)
        return GateAnswer.WAITING

    def poll(self) -> list[GateEvent]:
        if self._rng.random() < 0.01:
            self._waiting.clear()
            raise RuntimeError("the gate fails for all")
        over = [uid for uid in self._waiting if self._rng.random() < 0.3]
        self._waiting = [uid for uid in self._waiting if uid not in over]
        gone, self._gone = self._gone, []
        return [GateEvent(uid=uid, error="lost" if self._rng.random() < 0.1 else "") for uid in over + gone]

    def cancel(self, uid: int) -> None:
        self._waiting.remove(uid)
        self._gone.append(uid)


class Faults:
    """A ledger that keeps what was booked."""

    def __init__(self) -> None:
        self.booked: list[tuple[str, FaultScope, BaseException]] = []

    def record(self, plugin: str, scope: FaultScope, error: BaseException) -> None:
        self.booked.append((plugin, scope, error))

    def quarantined(self, plugin: str) -> bool:
        return False

    def begin_anew(self, plugin: str) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """worker: "strict" and "wide" are the contract's fakes, "simulated" the plugin. fault_rate: of tiers and copies."""

    family: str
    worker: str
    page_size: int
    total_slots: int
    eviction: Eviction
    policy: str
    urgent_by: int
    ageing: float
    edf_late: Any
    gated: bool
    tiers: list[TierRule]
    fault_rate: float
    copy_us: float
    seed: int
    config: dict[str, Any]

    @property
    def most_skips(self) -> int:
        most: int = self.config["max_skips"]
        return most

    @property
    def swappable(self) -> list[str]:
        """Policies that the cache can serve."""
        return [name for name, needs in POLICIES.items() if self.family != "chunk" or "forest" not in needs]

    def make(self) -> SchedulerHarness:
        rng = random.Random(self.seed)
        needs = POLICIES.get(self.policy, ["cached_tokens"])
        settings: dict[str, Any] = {
            "policy": self._policy(),
            "policy_needs": frozenset(needs),
            "gates": [("gate.moody", MoodyGate(rng)), ("gate.second", MoodyGate(rng))] if self.gated else [],
            "ledger": Faults(),
            "policies": InstalledPolicies(
                self.policy if self.policy in POLICIES else "fcfs",
                max_running=self.config["max_running_requests"],
                page_size=self.page_size,
                total_slots=self.total_slots,
            ),
            "page_size": self.page_size,
            "seed": self.seed,
            **self.config,
        }
        caches: dict[str, Any] = {"page": PageCache, "chunk": ChunkCache}
        made: PrefixCache | None = caches[self.family](self.page_size) if self.family in caches else None
        if self.worker == "simulated":
            tiers = [DictTier(rule, self._unsteady(rng)) for rule in self.tiers]
            return TieredRun(
                *tiers,
                total=self.total_slots,
                block=max(8, self.page_size),
                copy_us=self.copy_us,
                fails=(lambda: rng.random() < self.fault_rate / 2) if tiers else None,
                eviction=self.eviction,
                cache=made,
                max_running=settings.pop("max_running_requests"),
                **settings,
            )
        limits = WorkerLimits(
            max_rows=settings["max_running_requests"] + 1,
            max_context=CONTEXT,
            total_slots=self.total_slots,
            page_size=self.page_size,
            vocab_size=STRICT_VOCAB,
            max_tokens=256,
        )
        worker = FakeWorker(limits)
        if self.worker != "strict":
            worker = WideWorker(limits, width=3, deferred=self.worker == "deferred", late=self.seed % 3)
        return SchedulerHarness(
            worker=worker,
            cache=made if made is not None else RadixCache(self.page_size, self.eviction),
            context_length=CONTEXT,
            vocab_size=STRICT_VOCAB,
            eos_token_ids=(EOS,),
            **settings,
        )

    def _policy(self) -> SchedulePolicy:
        if self.policy == "arrival":
            return ArrivalOrder()
        if self.policy == "whimsical":
            return Whimsical()
        options: dict[str, Any] = {
            "priority": PriorityOptions(ageing=self.ageing, preempt_difference=self.urgent_by),
            "token-budget": TokenBudgetOptions(step_tokens=16, min_prefill=3, partial_prefills=1 + self.seed % 2),
            "edf": EdfOptions(late=self.edf_late),
        }
        (found,) = entry_points(group="jackfield.schedule_policy", name=self.policy)
        context = PolicyContext(
            kind="schedule_policy",
            name=self.policy,
            instance=self.policy,
            options=options.get(self.policy),
            max_running=self.config["max_running_requests"],
            page_size=self.page_size,
            total_slots=self.total_slots,
        )
        policy: SchedulePolicy = found.load().jackfield_schedule_policy(context)
        return policy

    def _unsteady(self, rng: random.Random) -> Any:
        def plan(what: str) -> bool:
            drawn = rng.random()
            if what != "clear" and drawn < self.fault_rate / 2:
                raise OSError(f"{what} failed")
            return drawn >= self.fault_rate

        return plan

    def alone(self, prompt: list[int], count: int) -> list[int]:
        """The first `count` tokens that the worker gives for this prompt, whatever ends the request."""
        pure = simulated_tokens if self.worker == "simulated" else strict_tokens
        return pure(tuple(prompt))[:count]


@cache
def strict_tokens(prompt: tuple[int, ...]) -> list[int]:
    return expected_tokens(prompt, CONTEXT + 1 - len(prompt), STRICT_VOCAB)


@cache
def simulated_tokens(prompt: tuple[int, ...]) -> list[int]:
    """The simulated worker's draw without an end token, an adapter or noise: of the hash of all tokens before."""
    hasher = PrefixHasher(CONTEXT + 1)
    at = hasher.prefixes(hasher.empty(0), np.array(prompt, dtype=np.int32))[-1:]
    tokens = []
    for _ in range(CONTEXT + 1 - len(prompt)):
        tokens.append(int(mix(at)[0] % np.uint64(VOCAB)))
        at = hasher.extend(at, np.array(tokens[-1:], dtype=np.int32))
    return tokens


@st.composite
def setups(draw: st.DrawFn, family: str, workers: tuple[str, ...]) -> Setup:
    page_size = draw(st.sampled_from([1, 4, 16, 64] if family != "tiers" else [1, 4, 4, 16]))
    pools = {1: [24, 32, 48, 96], 4: [24, 32, 48, 96], 16: [48, 64, 96], 64: [128, 192]}
    total = draw(st.sampled_from(pools[page_size]))
    budget = draw(st.one_of(st.integers(4, 32), st.sampled_from([page_size, 2 * page_size])))
    chunks = [None, -1, *(page_size * k for k in (1, 2, 4) if page_size * k <= budget)]
    limit = st.sampled_from([None, None, None, 4.0])
    policies = [name for name, needs in POLICIES.items() if family != "chunk" or "forest" not in needs]
    rules = st.builds(
        TierRule,
        write=st.sampled_from(["through", "back"]),
        write_after=st.sampled_from([1, 2]),
        min_load_tokens=st.sampled_from([1, 8]),
    )
    return Setup(
        family=family,
        worker="simulated" if family == "tiers" else draw(st.sampled_from(workers)),
        page_size=page_size,
        total_slots=total,
        eviction=draw(st.sampled_from(get_args(Eviction))),
        policy=draw(st.sampled_from(["arrival", "whimsical", "priority", "priority", *policies])),
        urgent_by=draw(st.sampled_from([0, 0, 1, -1])),
        ageing=draw(st.sampled_from([0.0, 0.5])),
        edf_late=draw(st.sampled_from(["first", "last"])),
        gated=draw(st.booleans()),
        tiers=draw(st.lists(rules, min_size=1, max_size=2)) if family == "tiers" else [],
        fault_rate=draw(st.sampled_from([0.0, 0.0, 0.1, 0.4])),
        copy_us=draw(st.sampled_from([0.0, 1e3, 1e5, 1e6])),
        seed=draw(st.integers(0, 1000)),
        config={
            "max_prefill_tokens": budget,
            "chunked_prefill_size": draw(st.sampled_from(chunks)),
            "max_running_requests": draw(st.sampled_from([2, 3, 8])),
            "max_consecutive_prefills": draw(st.sampled_from([1, 3, 8])),
            "request_waiting_timeout": draw(limit),
            "request_running_timeout": draw(limit.map(lambda seconds: seconds and seconds + 2)),
            "schedule_conservativeness": draw(st.sampled_from([0.01, 0.01, 1.0, 11.0])),
            "max_queued_requests": draw(st.sampled_from([None, None, 6])),
            "hold_back_tokens": draw(st.sampled_from([0, 4])),
            "max_skips": draw(st.sampled_from([2, 6, 128])),
        },
    )
