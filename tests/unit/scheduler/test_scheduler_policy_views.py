"""What a policy is shown beyond the plain columns: the forest, the request's own fields, and the record of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield.hookspecs import (
    CacheKey,
    FaultScope,
    PrefixForest,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepRecord,
    tenant_code,
)
from jackfield.testing.page_cache import PageCache
from jackfield.testing.scheduler_harness import SchedulerHarness


class Looking(SchedulePolicy):
    """Arrival order; keeps what it was shown."""

    def __init__(self) -> None:
        self.views: list[SchedulerView] = []
        self.columns: list[dict[str, list[Any]]] = []
        self.records: list[StepRecord] = []

    def order(self, waiting: RequestTable, view: SchedulerView) -> NDArray[np.intp] | None:
        self.views.append(view)
        names = ("uid", "priority", "tenant", "deadline", "arrival")
        self.columns.append({name: getattr(waiting, name).tolist() for name in names})
        return None

    def observe(self, record: StepRecord) -> None:
        self.records.append(record)


class Counting(PageCache):
    """failing: what the next call of `forest` does instead."""

    def __init__(self) -> None:
        super().__init__(1)
        self.calls = 0
        self.failing: Any = None

    def forest(self, keys: Sequence[CacheKey]) -> PrefixForest:
        self.calls += 1
        failing, self.failing = self.failing, None
        if isinstance(failing, Exception):
            raise failing
        return failing or super().forest(keys)


class Ledger:
    def __init__(self) -> None:
        self.entries: list[tuple[str, FaultScope, str]] = []

    def record(self, plugin: str, scope: FaultScope, error: BaseException) -> None:
        self.entries.append((plugin, scope, str(error)))


def forest_run(cache: PageCache, places: int = 1, **settings: Any) -> tuple[SchedulerHarness, Looking]:
    policy = Looking()
    needs = frozenset({"forest"})
    return SchedulerHarness(
        policy=policy, cache=cache, policy_needs=needs, max_running_requests=places, hold_back_tokens=0, **settings
    ), policy


def test_the_forest_is_over_the_waiting_rows() -> None:
    run, policy = forest_run(PageCache(1))
    run.submit([1, 2, 3, 4], max_new_tokens=1)
    run.run()
    run.submit([9, 9], max_new_tokens=1)
    run.submit([1, 2, 3, 4, 5], max_new_tokens=1)
    run.submit([1, 2, 8], max_new_tokens=1)
    run.turn()
    first, second = policy.views[0].forest, policy.views[1].forest
    assert first is not None
    assert first.node.tolist() == [-1]
    assert second is not None
    assert second.matched.tolist() == [0, 4, 2]
    run.run()


def test_without_the_need_nobody_asks_the_cache() -> None:
    cache, policy = Counting(), Looking()
    run = SchedulerHarness(policy=policy, cache=cache)
    run.submit([1, 2], max_new_tokens=1)
    run.run()
    assert cache.calls == 0
    assert policy.views[0].forest is None


def test_the_forest_is_looked_up_again_only_after_a_change() -> None:
    cache = Counting()
    # A place is free and the memory is not, so that the policy is asked in every step while nothing changes.
    run, policy = forest_run(cache, places=2, total_slots=40)
    run.submit([1, 2, 3], max_new_tokens=30)
    run.submit([4, 5, 6], max_new_tokens=30)
    for _ in range(3):
        run.turn()
    calls, asked = cache.calls, len(policy.views)
    for _ in range(10):
        run.turn()
    assert (cache.calls, len(policy.views)) == (calls, asked + 10)
    run.submit([1, 2, 8], max_new_tokens=30)
    run.turn()
    assert cache.calls == calls + 1
    forest = policy.views[-1].forest
    assert forest is not None
    assert forest.matched.tolist() == [0, 2]
    run.run()


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (RuntimeError("no forest today"), "no forest today"),
        (3, "forest returned a int, not a PrefixForest"),
        (PrefixForest.from_paths([], np.empty(0, dtype=np.int32)), "forest tells of 0 keys where 1 were asked about"),
    ],
)
def test_a_cache_that_fails_at_it_is_booked_and_the_step_goes_on(failing: Any, words: str) -> None:
    cache, ledger = Counting(), Ledger()
    run, policy = forest_run(cache, ledger=ledger)
    cache.failing = failing
    run.submit([1, 2], rid="a", max_new_tokens=1)
    run.run()
    assert ledger.entries == [("cache", FaultScope.DEGRADE, words)]
    assert policy.views[0].forest is None
    assert run.answers["a"].ids == run.expected("a", 1)
    run.submit([1, 2], max_new_tokens=1)
    run.run()
    assert policy.views[1].forest is not None


def test_the_requests_fields_are_columns() -> None:
    policy = Looking()
    run = SchedulerHarness(policy=policy, max_running_requests=1)
    run.clock.advance(100.0)
    run.submit([1], max_new_tokens=1, priority=-7, tenant="acme", deadline=2.5)
    run.submit([2], max_new_tokens=1)
    run.turn()
    columns = policy.columns[0]
    assert columns["priority"] == [-7, 0]
    assert columns["tenant"] == [tenant_code("acme"), 0]
    assert columns["arrival"] == [100.0, 100.0]
    assert columns["deadline"] == [102.5, np.inf]
    run.run()


def test_the_record_tells_tenants_and_prompts() -> None:
    policy = Looking()
    run = SchedulerHarness(policy=policy, max_running_requests=2)
    acme, other = tenant_code("acme"), tenant_code("other")
    run.submit([1, 2, 3], max_new_tokens=3, tenant="acme")
    run.submit([4, 5], max_new_tokens=1, tenant="other")
    run.submit([6, 7], max_new_tokens=1)
    run.run()
    prefill, second, decode = policy.records[:3]
    assert (prefill.prefills, prefill.tenants.tolist(), prefill.tokens.tolist()) == (2, [acme, other], [3, 2])
    assert prefill.open_tenants.tolist() == sorted({acme, 0})  # other has ended
    assert (second.prefills, second.tenants.tolist()) == (1, [0])
    assert (decode.prefills, decode.tenants.tolist(), decode.tokens.tolist()) == (0, [acme], [1])
    assert policy.records[-1].open_tenants.tolist() == []
    assert all(len(record.tenants) == len(record.uids) for record in policy.records)
