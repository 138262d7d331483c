"""The conformance suite of kind `schedule_policy`: its answers on made-up tables, and all of it inside a whole scheduler.

Says nothing of whether an order is a good one. Needs no torch.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import (
    HOLD,
    Amounts,
    Chosen,
    SchedulePolicy,
    StepBudget,
)
from jackfield.managers.scheduler.policy_guard import checked_budget, checked_rows
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.conformance.guards import bytecodes, forbidden_acts, peak_bytes
from jackfield.testing.conformance.policy_questions import check_order, not_overridden, overrides
from jackfield.testing.conformance.policy_state import PolicyState
from jackfield.testing.conformance.policy_swap import OnePolicy
from jackfield.testing.conformance.policy_tables import MadeTable, made_record, made_view
from jackfield.testing.conformance.watched_policy import Watched
from jackfield.testing.scheduler_harness import SchedulerHarness

FEW, MANY = 250, 2000
"""Waiting requests between which the growth of work is measured."""

MOST_GROWTH = 2 * (MANY / FEW) * (np.log2(MANY) / np.log2(FEW))
"""Twice what sorting grows by; a loop over pairs grows by the square of MANY / FEW, 64."""

MAX_SKIPS = 4

EXAMPLES = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
"""The same examples on every machine; counted, never timed."""


class SchedulePolicyConformance(PolicyState):
    """Its answers, its work, and all of it in a scheduler."""

    @pytest.mark.parametrize("count", [0, 1, 2, 100, MANY])
    def test_order_gives_distinct_valid_rows(self, count: int) -> None:
        """`order` answers with distinct rows of the table, perhaps fewer, or None, for any number of waiting requests."""
        policy = self.policy()
        for seed in range(3):
            waiting = MadeTable(count, seed)
            check_order(policy, waiting, self.view(waiting, seed))

    @pytest.mark.parametrize("count", [1, 300])
    def test_order_takes_the_largest_numbers(self, count: int) -> None:
        """Priorities, lengths, tenants and deadlines at the ends of their ranges make no error and no invalid row."""
        policy, waiting = self.policy(), MadeTable(count, 1, huge=True)
        check_order(policy, waiting, self.view(waiting, 2**40, now=1e12, running=MadeTable(8, 2, huge=True)))

    def test_order_without_a_forest(self) -> None:
        """A policy that needs the forest still answers in a step in which the cache failed to give one."""
        if "forest" not in self.manifest().needs:
            self.not_claimed("needs has no 'forest'")
        waiting = MadeTable(20, 1)
        check_order(self.policy(), waiting, made_view(20, 1))

    def test_budget_is_one_that_can_be_spent(self) -> None:
        """`budget` answers with a StepBudget of whole numbers, at least one token and one candidate, also when memory is full."""
        policy = self.policy()
        full = {"free": 0, "evictable": 0}  # nothing may be left of the KV memory
        for count, left in ((0, {}), (1, {}), (MANY, {}), (20, full), (0, full)):
            budget = policy.budget(self.view(MadeTable(count, 1), count, **left))
            assert isinstance(budget, StepBudget), f"budget returned a {type(budget).__name__}, not a StepBudget"
            checked_budget(budget)

    def test_take_stays_within_what_it_may(self) -> None:
        """`take` answers with 0 to `most` tokens, or HOLD."""
        policy, waiting = self.policy(), MadeTable(40, 1)
        if not overrides(policy, "take"):
            self.not_claimed(not_overridden(policy, "take"))
        view = self.view(waiting, 1)
        for row in range(len(waiting)):
            for most in (1, 7, 100_000):
                chosen = Chosen(rows=np.arange(row, dtype=np.intp), tokens=np.full(row, most, dtype=np.int32))
                tokens = policy.take(row, most, waiting, chosen, view)
                assert tokens == HOLD or 0 <= tokens <= most, f"take of {most} tokens returned {tokens}"

    @pytest.mark.parametrize("running", [0, 1, 256])
    def test_victims_are_distinct_running_rows(self, running: int) -> None:
        """`victims` answers with distinct rows of the running requests, for a waiting one and for memory alone."""
        policy, waiting = self.policy(), MadeTable(20, 1)
        if not overrides(policy, "victims"):
            self.not_claimed(not_overridden(policy, "victims"))
        table = MadeTable(running, 2)
        for need in (Amounts(slots=0), Amounts(slots=10**9)):
            for row in (*range(len(waiting)), None):
                view = made_view(20, 1, waiting=None if row is None else waiting, running=table)
                checked_rows("victims", policy.victims(table, need, row, view), running)

    def test_no_clock_random_thread_or_io(self) -> None:
        """No call reads a clock, a global random generator or the system's, starts a thread, waits or does I/O."""
        policy, waiting = self.policy(), MadeTable(60, 1)
        questions = self.questions(policy, waiting, 1)
        questions["start"] = lambda: policy.start(waiting, MadeTable(8, 2), self.view(waiting, 1))
        questions["observe"] = lambda: policy.observe(made_record(2, [1, 2], admitted=(1, 2), finished=(1, 2)))
        for ask in questions.values():
            ask()  # what is imported at the first call is not I/O of the policy
        for what, ask in questions.items():
            acts = forbidden_acts(ask)
            assert not acts, f"{what}: {'; '.join(acts)}"

    def test_reads_only_what_its_manifest_needs(self) -> None:
        """It looks at `cached_tokens` of waiting requests, or at the forest, only if `needs` says so: else they are empty."""
        policy, waiting = self.policy(), MadeTable(60, 1)
        for ask in self.questions(policy, waiting, 1).values():
            ask()
        if "cached_tokens" not in self.manifest().needs:
            assert "cached_tokens" not in waiting.read, "it reads cached_tokens, which its manifest does not need"

    @pytest.mark.parametrize("count", [0, 1, MANY])
    def test_starts_on_what_is_there(self, count: int) -> None:
        """`start` takes over waiting and running requests, as at a live swap, and `order` answers at once."""
        policy: SchedulePolicy = self.make(max_running=8, page_size=1, total_slots=256)
        waiting = MadeTable(count, 1)
        policy.start(waiting, MadeTable(min(count, 256), 2), self.view(waiting, 1))
        checked_budget(policy.budget(self.view(waiting, 2)))
        check_order(policy, waiting, self.view(waiting, 2))

    def test_work_grows_no_faster_than_sorting(self) -> None:
        """From 250 to 2,000 waiting requests, bytecodes and memory of `order` grow no faster than a sort's."""
        policy = self.policy()
        for what, count in (("bytecodes", bytecodes), ("bytes", peak_bytes)):
            amounts = []
            for waiting in (MadeTable(FEW, 1), MadeTable(MANY, 1)):
                view = self.view(waiting, 1)
                policy.order(waiting, view)
                amounts.append(count(lambda waiting=waiting, view=view: policy.order(waiting, view)))  # type: ignore[misc]
            self.measured(f"{what} of order with {MANY} waiting", amounts[1])
            least = max(amounts[0], 1000)
            assert amounts[1] <= MOST_GROWTH * least, f"order with {FEW} and {MANY} waiting takes {amounts} {what}"

    @settings(EXAMPLES, max_examples=8)
    @given(
        requests=st.lists(
            st.tuples(st.integers(1, 40), st.integers(-3, 3), st.sampled_from([None, "a", "b"]), st.booleans()),
            min_size=1,
            max_size=12,
        ),
        places=st.integers(1, 4),
        page_size=st.sampled_from([1, 4]),
    )
    def test_everybody_is_answered_in_a_scheduler(
        self, requests: list[tuple[int, int, str | None, bool]], places: int, page_size: int
    ) -> None:
        """In a whole scheduler every request gets its own tokens, aborted ones end, and every slot comes back."""
        run = self.harness(max_running_requests=places, max_prefill_tokens=16, page_size=page_size)
        aborted = []
        for length, priority, tenant, abort in requests:
            rid = run.submit(
                list(range(length)), max_new_tokens=3, priority=priority, tenant=tenant, deadline=float(length)
            )
            if abort:
                run.turn()
                run.abort(rid)
                aborted.append(rid)
        run.run()
        for rid, answer in run.answers.items():
            count = len(answer.ids) if rid in aborted else 3
            assert answer.ids == run.expected(rid, count)
        run.assert_at_rest()

    @pytest.mark.parametrize("places", [1, 3])
    def test_nobody_is_passed_over_for_ever(self, places: int) -> None:
        """In a crowd that keeps coming, nobody is passed over more often than --max-skips, and all are answered."""
        rng = np.random.default_rng(places)
        policy = Watched(self.policy())
        run = self.harness(
            policy, max_running_requests=places, max_skips=MAX_SKIPS, max_prefill_tokens=24, check_invariants="off"
        )
        for i in range(60):
            run.submit(
                [int(rng.integers(3)) for _ in range(int(rng.integers(1, 30)))],
                max_new_tokens=int(rng.integers(1, 8)),
                priority=int(rng.integers(-5, 6)),
                tenant=(None, "a", "b")[i % 3],
                deadline=float(rng.integers(1, 50)) if i % 2 else None,
            )
            run.turn()
        run.run()
        self.measured(f"most skips with {places} places", policy.most)
        assert policy.most <= MAX_SKIPS
        assert all(answer.ids == run.expected(rid, len(answer.ids)) for rid, answer in run.answers.items())
        run.assert_at_rest()

    def test_a_live_swap_in_a_scheduler(self) -> None:
        """It takes the place of another policy in the middle of a run: nothing is drained, nobody lost, no token changed."""
        source = OnePolicy(self.loaded().selected, lambda: self.make(max_running=2, page_size=1, total_slots=256))
        run = SchedulerHarness(
            policies=source, policy_plugin=source.running.key, ledger=FaultLedger("raise"), max_running_requests=2
        )
        rids = []
        for i in range(12):
            rids.append(
                run.submit([i % 3, i % 4, 9], max_new_tokens=4, priority=i % 5, tenant=f"{i % 2}", deadline=9.0 + i)
            )
            if i == 6:
                run.swap(self.plugin)
            run.turn()
        run.run()
        assert [change.name for change in run.swaps] == [self.loaded().selected.name], f"no swap: {run.replies}"
        assert all(run.answers[rid].ids == run.expected(rid, 4) for rid in rids)
        run.assert_at_rest()

    def test_two_thousand_wait_in_a_scheduler(self) -> None:
        """With 2,000 waiting requests a scheduler goes on serving."""
        run = self.harness(max_running_requests=2, total_slots=512, max_skips=MAX_SKIPS, check_invariants="off")
        for i in range(MANY):
            run.submit(
                [i % 7, i % 11, i % 13], max_new_tokens=2, priority=i % 5, tenant=f"{i % 9}", deadline=1.0 + i % 17
            )
        turns = 10 * MAX_SKIPS  # enough for one that computes a token at a time, or waits for the bound
        for _ in range(turns):
            run.turn()
        ended = sum(answer.finish is not None for answer in run.answers.values())
        assert ended >= 4, f"of {MANY} waiting requests only {ended} were answered in {turns} steps"
