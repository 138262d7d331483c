"""Each policy on a table made by hand, and once in a whole scheduler, where its effect shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.hookspecs import DecodeTurn, PrefixForest, SchedulePolicy, SchedulerView, StepRecord
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_scheduler_policies.dfs_weight import DepthFirstByWeight
from jackfield_scheduler_policies.edf import EarliestDeadlineFirst, EdfOptions
from jackfield_scheduler_policies.fair_share import MAX_ABSENT, FairShare, FairShareOptions
from jackfield_scheduler_policies.hrrn import HighestResponseRatioNext, HrrnOptions
from jackfield_scheduler_policies.lof import LongestOutputFirst
from jackfield_scheduler_policies.lpm import LongestPrefixMatch, LpmOptions
from jackfield_scheduler_policies.priority import PriorityFirst, PriorityOptions
from jackfield_scheduler_policies.random_order import RandomOrder
from jackfield_scheduler_policies.token_budget import TokenBudget, TokenBudgetOptions

DTYPES = {"uid": np.int64, "arrival": np.float64, "deadline": np.float64}


class Table(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.uid)


def table(count: int, **columns: Any) -> Any:
    """`count` waiting requests; columns that are not given are 0, deadlines infinite."""
    names = (
        "arrival prompt_tokens computed output_tokens max_new_tokens cached_tokens priority tenant adapter retractions"
    )
    made: dict[str, Any] = {name: np.zeros(count, dtype=DTYPES.get(name, np.int32)) for name in names.split()}
    made["uid"] = np.arange(1, count + 1)
    made["deadline"] = np.full(count, np.inf)
    return Table(
        **made | {name: np.array(values, dtype=DTYPES.get(name, np.int32)) for name, values in columns.items()}
    )


def view(now: float = 0.0, seed: int = 1, forest: PrefixForest | None = None) -> SchedulerView:
    return SchedulerView(
        now=now,
        seed=seed,
        step=1,
        free=100,
        evictable=0,
        total=100,
        page_size=1,
        max_running=8,
        max_prefill=64,
        running=table(0),
        forest=forest,
    )


def ordered(policy: SchedulePolicy, waiting: Any, at: SchedulerView | None = None) -> list[int]:
    rows = policy.order(waiting, at if at is not None else view())
    assert rows is not None
    return rows.tolist()


def turn(run: SchedulerHarness, ended: dict[str, float]) -> None:
    """One turn; who ended in it is noted with the time."""
    run.turn()
    for rid, answer in run.answers.items():
        if answer.finish is not None:
            ended.setdefault(rid, run.clock.now())


def finish_order(run: SchedulerHarness, ended: dict[str, float] | None = None) -> list[str]:
    """The requests in the order in which they ended, after those who have ended already."""
    ended = ended if ended is not None else {}
    for _ in range(1000):
        turn(run, ended)
        if len(ended) == len(run.prompts):
            run.assert_at_rest()
            return list(ended)
    raise AssertionError("it did not end")


def one_at_a_time(policy: SchedulePolicy, *needs: str, **settings: Any) -> SchedulerHarness:
    return SchedulerHarness(policy=policy, policy_needs=frozenset(needs), max_running_requests=1, **settings)


def cold(number: int, length: int = 3) -> list[int]:
    """A prompt that shares nothing with another number's."""
    return [100 + 10 * number + i for i in range(length)]


# lpm


def test_lpm_orders_by_cached_prefix_and_equals_by_arrival() -> None:
    waiting = table(5, cached_tokens=[0, 16, 4, 16, 0])
    assert ordered(LongestPrefixMatch(LpmOptions()), waiting) == [1, 3, 2, 0, 4]


def test_lpm_keeps_arrival_order_in_a_longer_queue_than_its_bound() -> None:
    policy = LongestPrefixMatch(LpmOptions(max_queue=3))
    assert ordered(policy, table(3, cached_tokens=[0, 1, 2])) == [2, 1, 0]
    assert policy.order(table(4, cached_tokens=[0, 1, 2, 3]), view()) is None


def test_lpm_reuses_prefixes_before_they_are_evicted() -> None:
    def cached(policy: SchedulePolicy) -> int:
        run = one_at_a_time(policy, "cached_tokens", total_slots=40)
        prefix = list(range(20))
        run.submit(prefix, max_new_tokens=1)
        run.run()
        for i in range(4):  # each stranger fills the pool, and evicts the prefix
            run.submit([200 + 40 * i + j for j in range(30)], max_new_tokens=1)
            run.submit([*prefix, 900 + i], max_new_tokens=1)
        run.run()
        return sum(answer.last.cached_tokens for answer in run.answers.values())

    assert cached(LongestPrefixMatch(LpmOptions())) == 4 * 20
    assert cached(LongestPrefixMatch(LpmOptions(max_queue=0))) <= 2 * 20


# dfs-weight


def forest(paths: list[str], matched: list[int] | None = None) -> PrefixForest:
    """A path is a word whose letters, with what stands before them, are the nodes."""
    return PrefixForest.from_paths(
        [[path[: i + 1] for i in range(len(path))] for path in paths],
        np.array(matched if matched is not None else [len(path) for path in paths], dtype=np.int32),
    )


def test_dfs_weight_visits_heavy_branches_first_and_below_before_above() -> None:
    #            0    1    2     3     4     5   6
    paths = ["b", "ab", "", "aca", "acb", "ac", "a"]
    order = ordered(DepthFirstByWeight(), table(7), view(forest=forest(paths)))
    # a (5) before b (1); in a: ac (3) before ab (1), then a's own; in ac: its children, then its own; nothing cached last
    assert order == [3, 4, 5, 1, 6, 0, 2]


def test_dfs_weight_puts_longer_matches_inside_one_node_first() -> None:
    order = ordered(DepthFirstByWeight(), table(4), view(forest=forest(["a", "a", "ab", "a"], [3, 9, 20, 10])))
    assert order == [2, 3, 1, 0]


def test_dfs_weight_of_a_deep_tree() -> None:
    deep = "x" * 1000
    order = ordered(DepthFirstByWeight(), table(3), view(forest=forest([deep[:1], deep, deep[:500]])))
    assert order == [1, 2, 0]


def test_dfs_weight_keeps_arrival_order_in_a_step_without_a_forest() -> None:
    assert DepthFirstByWeight().order(table(2), view()) is None


def test_dfs_weight_runs_those_who_share_one_after_the_other() -> None:
    run = SchedulerHarness(policy=DepthFirstByWeight(), policy_needs=frozenset({"forest"}))
    prefixes = {name: [base + i for i in range(8)] for name, base in (("light", 100), ("heavy", 200))}
    for prefix in prefixes.values():
        run.submit(prefix, max_new_tokens=1)
    run.run()
    for i, name in enumerate(("cold", "light", "heavy", "light", "heavy", "heavy")):
        run.submit([*prefixes.get(name, []), 500 + i], max_new_tokens=1)
    run.turn()
    admitted = [int(opened.history[-1]) - 500 for opened in run.worker.batches[-1].opened]
    assert admitted == [2, 4, 5, 1, 3, 0]
    run.run()


# lof, hrrn, random


def test_lof_orders_by_what_may_still_be_generated() -> None:
    waiting = table(4, max_new_tokens=[5, 90, 100, 5], output_tokens=[0, 0, 60, 0])
    assert ordered(LongestOutputFirst(), waiting) == [1, 2, 0, 3]


def test_lof_ends_a_batch_of_unequal_answers_sooner() -> None:
    def steps(policy: SchedulePolicy | None) -> int:
        run = SchedulerHarness(policy=policy, max_running_requests=2, hold_back_tokens=0)
        for i, tokens in enumerate((4, 4, 4, 4, 16)):
            run.submit(cold(i), max_new_tokens=tokens)
        run.run()
        return run.scheduler.committed_steps

    assert steps(LongestOutputFirst()) < steps(None)


def test_hrrn_weighs_waiting_against_service() -> None:
    policy = HighestResponseRatioNext(HrrnOptions())
    waiting = table(
        4,
        arrival=[0, 90, 90, 99],
        prompt_tokens=[400, 30, 130, 10],
        cached_tokens=[0, 0, 110, 0],
        max_new_tokens=[0, 10, 0, 0],
    )
    # at 100: 100/400, 10/40, 10/20, 1/10
    assert ordered(policy, waiting, view(now=100.0)) == [2, 0, 1, 3]
    assert ordered(policy, waiting, view(now=101.0)) == [2, 1, 0, 3]
    assert ordered(HighestResponseRatioNext(HrrnOptions(output_weight=0)), waiting, view(now=100.0))[:2] == [2, 1]


def test_hrrn_lets_a_long_request_in_before_the_skip_bound_does() -> None:
    run = one_at_a_time(HighestResponseRatioNext(HrrnOptions()), "cached_tokens", max_skips=10_000, hold_back_tokens=0)
    run.submit([999], max_new_tokens=4)  # behind it a short queue builds up
    run.turn()
    run.submit(list(range(60)), rid="long", max_new_tokens=1)
    for i in range(300):  # one short request a second, and a second for each
        run.submit([500 + i], rid=f"short{i}", max_new_tokens=1)
        run.turn()
        if run.answers["long"].finish is not None:
            break
    assert run.answers["short9"].finish is not None
    assert 20 < i < 200


def test_random_orders_follow_the_seed_alone() -> None:
    waiting = table(20)
    assert ordered(RandomOrder(), waiting, view(seed=5)) == ordered(RandomOrder(), waiting, view(seed=5, now=9.0))
    assert ordered(RandomOrder(), waiting, view(seed=5)) != ordered(RandomOrder(), waiting, view(seed=6))


def test_random_serves_in_an_order_that_the_runs_seed_decides() -> None:
    def served(seed: int) -> list[str]:
        run = one_at_a_time(RandomOrder(), seed=seed)
        for i in range(12):
            run.submit(cold(i), max_new_tokens=1)
        return finish_order(run)

    assert served(1) == served(1) != served(2)


# priority


def test_priority_goes_before_arrival() -> None:
    waiting = table(5, priority=[0, 2**31 - 1, -(2**31), 3, 3])
    assert ordered(PriorityFirst(PriorityOptions()), waiting) == [1, 3, 4, 0, 2]


def test_priority_ageing_lets_the_patient_overtake() -> None:
    waiting = table(3, arrival=[0, 10, 10], priority=[0, 1, 5])
    assert ordered(PriorityFirst(PriorityOptions()), waiting, view(now=20)) == [2, 1, 0]
    assert ordered(PriorityFirst(PriorityOptions(ageing=0.2)), waiting, view(now=20)) == [2, 0, 1]
    assert ordered(PriorityFirst(PriorityOptions(ageing=1.0)), waiting, view(now=20)) == [0, 2, 1]


@pytest.mark.parametrize(("ageing", "place"), [(0.0, 11), (2.0, 3)])
def test_priority_in_a_scheduler(ageing: float, place: int) -> None:
    run = one_at_a_time(PriorityFirst(PriorityOptions(ageing=ageing)), hold_back_tokens=0)
    ended: dict[str, float] = {}
    run.submit(cold(0), rid="running", max_new_tokens=4)
    turn(run, ended)
    run.submit(cold(1), rid="patient", max_new_tokens=1, priority=-4)
    for i in range(10):  # one step takes a second, so each arrives a second after the one before
        run.submit(cold(2 + i), rid=f"urgent{i}", max_new_tokens=1)
        turn(run, ended)
    order = finish_order(run, ended)
    assert order.index("patient") == place


# edf


def test_edf_orders_by_deadline_and_those_without_by_arrival() -> None:
    waiting = table(5, deadline=[np.inf, 30, 10, np.inf, 20])
    assert ordered(EarliestDeadlineFirst(EdfOptions()), waiting) == [2, 4, 1, 0, 3]
    late_last = EarliestDeadlineFirst(EdfOptions(late="last"))
    assert ordered(late_last, waiting) == [2, 4, 1, 0, 3]
    assert ordered(late_last, waiting, view(now=15)) == [4, 1, 0, 3, 2]


def test_edf_meets_deadlines_that_arrival_order_misses() -> None:
    def met(policy: SchedulePolicy | None) -> int:
        run = one_at_a_time(policy or PriorityFirst(PriorityOptions()))
        deadlines = {f"r{i}": float(20 - 2 * i) for i in range(10)}  # the last to come is the first to be due
        for i, (rid, deadline) in enumerate(deadlines.items()):
            run.submit(cold(i), rid=rid, max_new_tokens=1, deadline=deadline)
        ends: dict[str, float] = {}
        finish_order(run, ends)
        return sum(ends[rid] <= deadline for rid, deadline in deadlines.items())

    assert met(EarliestDeadlineFirst(EdfOptions())) == 10
    assert met(None) < 10


def test_edf_under_overload_gives_up_the_late_to_save_the_others() -> None:
    def in_time(policy: SchedulePolicy) -> int:
        run = one_at_a_time(policy, max_skips=10_000, hold_back_tokens=0)
        ends: dict[str, float] = {}
        for i in range(30):  # two requests a second, each runs for one
            for rid in (f"{i} a", f"{i} b"):
                run.submit([len(run.prompts)], rid=rid, max_new_tokens=1, deadline=6.0)
            turn(run, ends)
        return sum(end - int(rid.split()[0]) <= 6.0 for rid, end in ends.items())

    assert in_time(EarliestDeadlineFirst(EdfOptions())) < 15
    assert in_time(EarliestDeadlineFirst(EdfOptions(late="last"))) > 25


# token-budget


def record(decoded: int, **fields: Any) -> StepRecord:
    return StepRecord(
        step=1,
        started=0.0,
        ended=1.0,
        uids=np.arange(decoded, dtype=np.int64),
        tokens=np.ones(decoded, dtype=np.int32),
        **fields,
    )


def test_token_budget_leaves_to_prompts_what_decodes_do_not_need() -> None:
    policy = TokenBudget(TokenBudgetOptions(step_tokens=64, min_prefill=4, partial_prefills=2))
    assert policy.order(table(3), view()) is None
    budget = policy.budget(view())
    assert (budget.prefill_tokens, budget.decode, budget.partial_prefills) == (64, DecodeTurn.MIX, 2)
    policy.observe(record(24, finished=(1, 2, 3, 4)))
    assert policy.budget(view()).prefill_tokens == 44
    policy.observe(record(100))
    assert policy.budget(view()).prefill_tokens == 4
    policy.observe(record(1, finished=(0,)))
    assert policy.budget(view()).prefill_tokens == 64
    policy.start(table(0), table(10), view())
    assert policy.budget(view()).prefill_tokens == 54


def test_token_budget_never_stops_a_stream_for_a_long_prompt() -> None:
    def longest_gap(policy: SchedulePolicy | None, **settings: Any) -> int:
        run = SchedulerHarness(policy=policy, hold_back_tokens=0, **settings)
        run.submit([1, 2, 3], rid="stream", max_new_tokens=40)
        run.turn()
        gaps, gap = [], 0
        for i in range(30):
            if i % 10 == 0:
                run.submit([300 + i + j for j in range(80)], max_new_tokens=1)
            before = len(run.answers["stream"].ids)
            run.turn()
            gap = 0 if len(run.answers["stream"].ids) > before else gap + 1
            gaps.append(gap)
        run.run()
        sizes = [int(batch.new_tokens.sum()) for batch in run.worker.batches]
        if isinstance(policy, TokenBudget):
            assert max(sizes) == 16
            assert min(sizes[1:5]) >= 15  # filled up
        assert all(answer.ids == run.expected(rid, len(answer.ids)) for rid, answer in run.answers.items())
        return max(gaps)

    assert longest_gap(TokenBudget(TokenBudgetOptions(step_tokens=16, min_prefill=1))) == 0
    assert longest_gap(None, max_prefill_tokens=16) >= 5


# fair-share


def served(*tenants: int, prefills: int = 0, tokens: int = 1, present: tuple[int, ...] = ()) -> StepRecord:
    return StepRecord(
        step=1,
        started=0.0,
        ended=1.0,
        uids=np.arange(len(tenants), dtype=np.int64),
        tokens=np.full(len(tenants), tokens, dtype=np.int32),
        prefills=prefills,
        tenants=np.array(tenants, dtype=np.int32),
        open_tenants=np.array(sorted(present), dtype=np.int32),
    )


def test_fair_share_takes_turns_within_one_order() -> None:
    policy = FairShare(FairShareOptions())
    waiting = table(6, tenant=[7, 7, 7, 7, 9, 9], prompt_tokens=[10, 10, 10, 10, 25, 10])
    # 7 stands at 0, 10, 20, 30; 9 at 0, 25
    assert ordered(policy, waiting) == [0, 4, 1, 2, 5, 3]


def test_fair_share_charges_what_was_computed() -> None:
    policy = FairShare(FairShareOptions(prompt_weight=1, output_weight=3))
    waiting = table(3, tenant=[7, 8, 9], prompt_tokens=[1, 1, 1])
    policy.observe(served(7, prefills=1, tokens=10, present=(7, 8, 9)))  # 7: 10
    policy.observe(served(8, 8, present=(7, 8, 9)))  # 8: 6
    assert ordered(policy, waiting) == [2, 1, 0]
    policy.observe(served(9, 9, 9, present=(7, 8, 9)))  # 9: 9
    assert ordered(policy, waiting) == [1, 2, 0]


def test_fair_share_gives_no_credit_for_absence() -> None:
    policy = FairShare(FairShareOptions())
    for _ in range(50):
        policy.observe(served(7, 8, prefills=2, tokens=10, present=(7, 8)))  # both at 500
    policy.observe(served(8, prefills=1, tokens=10, present=(7, 8)))  # 7: 500, 8: 510
    newcomer = table(4, tenant=[8, 7, 9, 9], prompt_tokens=[10, 10, 10, 10])
    # the newcomer begins at 500 beside 7, and 510 comes before its second request
    assert ordered(policy, newcomer) == [1, 2, 0, 3]


def test_fair_share_remembers_who_left_ahead_of_the_others() -> None:
    policy = FairShare(FairShareOptions())
    policy.observe(served(7, prefills=1, tokens=100, present=(8,)))  # 7 took 100 and went; 8 waits at 0
    both = table(2, tenant=[7, 8], prompt_tokens=[1, 1])
    assert ordered(policy, both) == [1, 0]
    policy.observe(served(8, prefills=1, tokens=300, present=(8,)))  # now 8 is ahead, and so is the floor
    assert ordered(policy, both) == [0, 1]


@given(st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 5))), max_size=20))
def test_fair_share_never_lowers_a_counter_nor_the_floor(steps: list[tuple[list[int], set[int]]]) -> None:
    """So nobody gains by going away and coming back."""
    policy, everybody = FairShare(FairShareOptions()), np.arange(6, dtype=np.int32)
    for tenants, present in steps:
        before, floor = policy._counters(everybody), policy._floor
        policy.observe(served(*tenants, tokens=3, present=tuple(present)))
        assert (policy._counters(everybody) >= before).all()
        assert policy._floor >= floor
        assert (policy._served >= policy._floor).all()


def test_fair_share_does_not_remember_everybody() -> None:
    policy = FairShare(FairShareOptions())
    for start in range(0, 4 * MAX_ABSENT, MAX_ABSENT):
        strangers = range(start + 10, start + 10 + MAX_ABSENT)
        policy.observe(served(*strangers, prefills=MAX_ABSENT, present=(5,)))
    assert len(policy._tenants) == MAX_ABSENT + 1


def test_fair_share_serves_a_small_tenant_beside_a_flood() -> None:
    def last_of_the_small(policy: SchedulePolicy | None) -> int:
        run = one_at_a_time(policy or PriorityFirst(PriorityOptions()), max_skips=10_000)
        for i in range(30):
            run.submit(cold(i), rid=f"flood{i}", tenant="flood", max_new_tokens=2)
        for i in range(30, 35):
            run.submit(cold(i), rid=f"small{i}", tenant="small", max_new_tokens=2)
        order = finish_order(run)
        return max(order.index(f"small{i}") for i in range(30, 35))

    assert last_of_the_small(FairShare(FairShareOptions())) <= 10
    assert last_of_the_small(None) == 34


def test_fair_share_equals_out_unequal_requests() -> None:
    """Two tenants always ask for more; one sends prompts of four times the length, and gets as many tokens, not as many
    requests."""
    run = one_at_a_time(FairShare(FairShareOptions(output_weight=1)), max_skips=10_000, hold_back_tokens=0)
    lengths = {"long": 40, "short": 10}
    for i in range(20):
        for name, length in lengths.items():
            run.submit([20 * i + j for j in range(length)][::-1], rid=f"{name}{i}", tenant=name, max_new_tokens=1)
    for _ in range(20):
        run.turn()
    done = {
        name: sum(answer.finish is not None for rid, answer in run.answers.items() if rid.startswith(name))
        for name in lengths
    }
    assert done["long"] + done["short"] == 20
    assert 3 * done["long"] <= done["short"] <= 5 * done["long"]
    run.run()
