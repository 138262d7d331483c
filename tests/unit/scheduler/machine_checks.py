"""What must hold of a scheduler after every step, whatever came from outside: beside the scheduler's own invariants (the
pool's equation, the balance of leases, empty tables at rest) what its clients see and how long anybody waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jackfield.hookspecs import FaultScope
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.capacity import check_capacity
from jackfield.testing.scheduler_harness import Answer, SchedulerHarness
from tests.unit.scheduler.machine_setup import EOS, Setup
from tests.unit.scheduler.tiered import CONTEXT

OVERTAKEN = 0
"""A request is passed over at most --max-skips times, and this often more: the step in which others are admitted before it
because its own memory was taken for one of them."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was sent, and `full`: all tokens that it gets if nothing ends it early; None: it can only be refused."""

    prompt: list[int]
    granted: int
    ends: frozenset[int]
    full: list[int] | None


@dataclass
class Totals:
    """What the examples of one test did."""

    counts: Counter[str] = field(default_factory=Counter)

    @property
    def steps(self) -> int:
        return self.counts["scheduler steps"]


class Checks:
    """steps_ahead: most steps of others before the request that goes first next must run; see `the_first_gets_in`."""

    def __init__(self, setup: Setup, run: SchedulerHarness) -> None:
        self.setup = setup
        self.run = run
        self.asked: dict[str, Asked] = {}
        self.stopped: set[str] = set()
        self.shown: Counter[str] = Counter()
        self.polled_at = -np.inf
        self.overdue: frozenset[int] = frozenset()
        self._first: tuple[int, int] | None = None

    def sent(self, rid: str, prompt: list[int], new: int, *, ignore_eos: bool, stops: tuple[int, ...]) -> None:
        try:
            granted = check_capacity(
                len(prompt),
                new,
                context_length=CONTEXT,
                total_slots=self.setup.total_slots,
                page_size=self.setup.page_size,
            )
        except RequestError:
            self.asked[rid] = Asked(prompt=prompt, granted=0, ends=frozenset(), full=None)
            return
        ends = frozenset(stops)
        if self.setup.worker != "simulated" and not ignore_eos:
            ends |= {EOS}
        full = self.setup.alone(prompt, granted)
        last = next((i for i, token in enumerate(full) if token in ends), len(full) - 1)
        self.asked[rid] = Asked(prompt=prompt, granted=granted, ends=ends, full=full[: last + 1])

    def after_every_step(self) -> None:
        self.run.collect()
        self.run.scheduler.check_invariants()
        self.outputs_only_grow()
        self.nobody_waits_too_long()
        self.the_first_gets_in()
        self.the_record_is_true()

    def outputs_only_grow(self) -> None:
        """Each token that is shown is the one that the request gets alone, at its place: none changes or comes twice. (That
        nothing comes after the finish, and that it comes once, is checked by the harness.)"""
        for rid, answer in self.run.answers.items():
            ids = answer.ids
            assert len(ids) >= self.shown[rid]
            if len(ids) > self.shown[rid]:
                full = self.asked[rid].full
                assert full is not None
                assert ids == full[: len(ids)], f"{rid} got {ids}, alone it gets {full}"
                self.shown[rid] = len(ids)

    def nobody_waits_too_long(self) -> None:
        """Passed over no more often than it may be, and not there any more when its time is over."""
        scheduler, config = self.run.scheduler, self.run.config
        skips = scheduler._waiting.table["skips"]
        assert not len(skips) or int(skips.max()) <= self.setup.most_skips + OVERTAKEN, f"passed over {skips} times"
        for limit, column, tables in (
            (config.request_waiting_timeout, "arrival", [scheduler._waiting.table]),
            (config.request_running_timeout, "started", [scheduler._waiting.table, scheduler._running]),
        ):
            for table in tables:
                since = table[column]
                if column == "arrival":
                    since = since[table["started"] == np.inf]
                if limit is not None and len(since):
                    assert float(since.min()) + limit > self.polled_at, f"{column} {since} at {self.polled_at}"

    def before_a_turn(self) -> None:
        queue = self.run.scheduler._waiting
        self.overdue = frozenset(queue.table["uid"][queue.overdue()].tolist())

    def work(self, uids: set[int] | None = None) -> int:
        """Tokens that these open requests, or all, can still cost, if each of them is computed twice."""
        requests = [r for r in self.run.scheduler._control._live.values() if uids is None or r.uid in uids]
        return sum(2 * (len(request.prompt) + request.max_new_tokens) for request in requests)

    def the_first_gets_in(self) -> None:
        """Who was passed over as often as may be goes first: it runs before the others that are open have done their work,
        even if each token of theirs takes a step and is computed twice."""
        scheduler = self.run.scheduler
        overdue = scheduler._waiting.overdue()
        if not len(overdue):
            self._first = None
            return
        uid = int(scheduler._waiting.table["uid"][overdue[0]])
        if self._first is None or self._first[0] != uid:
            self._first = (uid, scheduler.committed_steps + self.work() + 8)
        assert scheduler.committed_steps <= self._first[1], f"uid {uid} is first in the queue and does not come to run"

    def nobody_idles_beside_work(self) -> None:
        """Called when a turn had nothing to launch and nothing is in flight: nobody may wait then, but for a gate, a copy that
        holds the memory, or a policy that chooses nobody, which an overdue request need not mind."""
        scheduler = self.run.scheduler
        state = scheduler.state()
        if state.pending:
            return
        assert not state.running, "somebody runs, and no step was launched"
        waiting = scheduler._waiting
        assert not self.overdue & set(waiting.table["uid"].tolist()), "an overdue request waits beside an idle worker"
        assert self.setup.policy == "whimsical" or not len(waiting.table), "somebody waits beside an idle worker"

    def the_record_is_true(self) -> None:
        lives = self.run.scheduler._decisions.lives
        state = self.run.scheduler.state()
        waits = [life for life in lives if life.seen is not None]
        assert len(waits) == state.waiting - len(self.run.scheduler._waiting.gated)
        assert sum(1 for _ in lives) == state.waiting + state.running
        for life in waits:
            assert life.seen is not None
            counts = [own + now - then for own, now, then in zip(life.waits, lives.rounds, life.seen, strict=True)]
            assert min(counts) >= 0, counts

    def at_the_end(self) -> None:
        """Each request has ended once, as it would have alone, and nothing is left."""
        run = self.run
        assert set(run.answers) == set(self.asked)
        self.outputs_only_grow()
        for rid, asked in self.asked.items():
            answer = run.answers[rid]
            assert answer.finish is not None
            self._the_life_is_the_answers(rid, answer)
            if asked.full is None:
                assert answer.finish.type == "abort"
                assert answer.finish.status_code == 400
            elif answer.finish.type == "length":
                assert answer.finish.length == len(answer.ids) == asked.granted
                assert answer.ids == asked.full
            elif answer.finish.type == "stop" and rid not in self.stopped:
                assert answer.ids == asked.full
                assert answer.ids[-1] in asked.ends
            else:
                assert answer.finish.type == "abort" or rid in self.stopped
        run.assert_at_rest()
        for plugin, scope, error in run.ledger.booked:
            assert plugin.startswith(("gate.", "kv_tier.")), f"{plugin} failed: {error!r}"
            assert scope is not FaultScope.STOP

    def _the_life_is_the_answers(self, rid: str, answer: Answer) -> None:
        """What `why` tells of a request that ended is what its client was told."""
        found = self.run.scheduler.why(rid)["requests"]
        if not found:
            return  # so many have ended that this one is forgotten
        (life,) = found
        kinds = [event["event"] for event in life["events"]]
        if kinds == ["refused"]:
            assert answer.ids == []
            return
        ended = life["events"][-1]
        finish: Any = answer.finish
        assert (ended["event"], ended["type"], ended["outputs"]) == ("ended", finish.type, len(answer.ids))
        assert kinds.count("retracted") == answer.last.retractions
        assert kinds.count("admitted") - kinds.count("retracted") in (0, 1)
        assert ("first_token" in kinds) == bool(answer.ids)
        computed = sum(event["tokens"] for event in life["events"] if event["event"] == "prefill")
        if ended["type"] == "length" and "retracted" not in kinds:
            assert computed == life["prompt_tokens"] - life["events"][kinds.index("admitted")]["cached"]
