"""A whole scheduler on fakes, driven one phase or one turn at a time, with what came out of it by request.

For tests of the scheduler, and for authors of policies, loops and caches. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jackfield.hookspecs import (
    Gate,
    PrefixCache,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StackChanged,
    StepOutcome,
    WorkerLimits,
)
from jackfield.ipc.channels import InMemoryChannel
from jackfield.ipc.messages import (
    AbortRequest,
    ControlReply,
    FinishReason,
    LogprobParams,
    RequestOpened,
    SamplingParams,
    SchedulerReport,
    StackNews,
    SwapPolicyRequest,
    ToDetokenizer,
    TokenizedGenerateRequest,
    TokenOutput,
    ToMain,
    ToScheduler,
)
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.grammar.gate import GrammarSetup
from jackfield.managers.scheduler.scheduler import Scheduler
from jackfield.managers.scheduler.swaps import PolicySource
from jackfield.managers.scheduler.tiers.store import TierSetup
from jackfield.observability.clock import ManualClock
from jackfield.testing.page_cache import PageCache
from jackfield.testing.scheduler_fakes import FakeWorker, expected_tokens


class ArrivalOrder(SchedulePolicy):
    """The simplest policy that can be."""

    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        return None


@dataclass
class Answer:
    """What the detokenizer was told of one request. entries: all of them, the last with `finish`."""

    opened: RequestOpened
    entries: list[TokenOutput] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token for entry in self.entries for token in entry.ids]

    @property
    def finish(self) -> FinishReason | None:
        return self.entries[-1].finish if self.entries else None

    @property
    def last(self) -> TokenOutput:
        return self.entries[-1]


class SchedulerHarness:
    """`turn` is one turn of a loop with one step in flight. Every step checks the invariants, unless told otherwise.

    answers   rid -> Answer, filled by `collect`, which checks the order of openings, entries and finishes
    """

    def __init__(
        self,
        *,
        cache: PrefixCache | None = None,
        policy: SchedulePolicy | None = None,
        worker: FakeWorker | None = None,
        page_size: int = 1,
        total_slots: int = 256,
        vocab_size: int = 1000,
        max_tokens: int = 4096,
        clock: ManualClock | None = None,
        observers: Any = None,
        ledger: Any = None,
        gates: Sequence[tuple[str, Gate]] = (),
        tiers: TierSetup | None = None,
        policies: PolicySource | None = None,
        grammars: GrammarSetup | None = None,
        **config: Any,
    ) -> None:
        settings: dict[str, Any] = {
            "context_length": 128,
            "vocab_size": vocab_size,
            "max_running_requests": 8,
            "check_invariants": "step",
            **config,
        }
        self.config = SchedulerConfig(**settings)
        self.worker = worker or FakeWorker(
            WorkerLimits(
                max_rows=self.config.max_running_requests + 1,
                max_context=self.config.context_length,
                total_slots=total_slots,
                page_size=page_size,
                vocab_size=vocab_size,
                max_tokens=max_tokens,
            )
        )
        self.ledger = ledger
        self.clock = clock if clock is not None else ManualClock()
        self.inbox = InMemoryChannel(ToScheduler)
        self._to_detokenizer = InMemoryChannel(ToDetokenizer)
        self._to_main = InMemoryChannel(ToMain)
        self.scheduler = Scheduler(
            self.config,
            worker=self.worker,
            cache=cache if cache is not None else PageCache(page_size),
            policy=policy if policy is not None else ArrivalOrder(),
            clock=self.clock,
            inbox=self.inbox,
            to_detokenizer=self._to_detokenizer,
            to_main=self._to_main,
            observers=observers,
            ledger=ledger,
            gates=gates,
            tiers=tiers,
            policies=policies,
            grammars=grammars,
        )
        self._swaps = 0
        self.answers: dict[str, Answer] = {}
        self.replies: list[ControlReply] = []
        self.reports: list[SchedulerReport] = []
        self.swaps: list[StackChanged] = []
        self.prompts: dict[str, list[int]] = {}

    def submit(
        self,
        ids: list[int],
        *,
        rid: str | None = None,
        priority: int = 0,
        tenant: str | None = None,
        deadline: float | None = None,
        logprobs: LogprobParams | None = None,
        cache_salt: str | None = None,
        **sampling: Any,
    ) -> str:
        """Send a request; greedy unless told otherwise. deadline: seconds from its arrival."""
        rid = rid if rid is not None else f"r{len(self.prompts) + 1}"
        self.prompts[rid] = ids
        params = SamplingParams(**{"temperature": 0.0, **sampling})
        self.inbox.send(
            TokenizedGenerateRequest(
                rid=rid,
                input_ids=ids,
                sampling=params,
                priority=priority,
                tenant=tenant,
                deadline=deadline,
                logprobs=logprobs,
                cache_salt=cache_salt,
            )
        )
        return rid

    def abort(self, rid: str) -> None:
        self.inbox.send(AbortRequest(rid=rid))

    def swap(self, name: str, **options: Any) -> None:
        """Ask `policies` for another policy; it takes over in the next turn. What was swapped stands in `swaps`, what was
        answered in `replies`."""
        self._swaps += 1
        self.inbox.send(SwapPolicyRequest(control_id=-self._swaps, name=name, options=options))

    def turn(self) -> StepOutcome:
        """Ingest, decide, launch, sample, commit."""
        scheduler = self.scheduler
        scheduler.ingest()
        scheduler.poll()
        batch = scheduler.next_batch()
        if batch is None:
            scheduler.idle()
            self.collect()
            return StepOutcome.IDLE
        step = scheduler.launch(batch)
        scheduler.sample(step)
        self.clock.advance(1.0)
        scheduler.commit(step)
        self.collect()
        return StepOutcome.RAN

    def run(self, turns: int = 10_000) -> None:
        """Turn until nothing is open. AssertionError if it takes more turns than that."""
        for _ in range(turns):
            outcome = self.turn()
            state = self.scheduler.state()
            if outcome is StepOutcome.IDLE and not state.waiting and not state.running:
                return
        raise AssertionError(f"still not done after {turns} turns: {self.scheduler.state()}")

    def collect(self) -> None:
        """Take what the scheduler sent."""
        while (message := self._to_detokenizer.receive()) is not None:
            if isinstance(message, StackNews):
                continue
            for opened in message.opened:
                assert opened.rid not in self.answers, f"{opened.rid} is opened twice"
                self.answers[opened.rid] = Answer(opened)
            for output in message.outputs:
                answer = self.answers.get(output.rid)
                assert answer is not None, f"{output.rid} gets an entry, but was not opened"
                assert answer.finish is None, f"{output.rid} gets an entry after its finish"
                answer.entries.append(output)
        while (reply := self._to_main.receive()) is not None:
            if isinstance(reply, SchedulerReport):
                self.reports.append(reply)
            elif isinstance(reply, StackNews):
                self.swaps.append(reply.change)
            else:
                assert isinstance(reply, ControlReply)
                self.replies.append(reply)

    def expected(self, rid: str, count: int) -> list[int]:
        """The tokens that the fake model generates for this request."""
        return expected_tokens(self.prompts[rid], count, self.worker.limits.vocab_size)

    def assert_at_rest(self) -> None:
        """Nothing is open, and every slot is free or in the cache without a lease."""
        state = self.scheduler.state()
        assert (state.running, state.waiting, state.in_flight) == (0, 0, 0)
        assert (state.held, state.protected, state.pending) == (0, 0, 0)
        assert state.free + state.evictable == state.total
        self.scheduler.check_invariants()
