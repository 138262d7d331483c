"""What holds of every policy of this package, found by its entry point and made with its default options."""

from __future__ import annotations

import importlib
import tomllib
from importlib.metadata import distribution, entry_points
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import (
    DecodeTurn,
    PolicyContext,
    PrefixForest,
    RequestTable,
    SchedulePolicy,
    SchedulerView,
    StepBudget,
    StepRecord,
)
from jackfield.testing.scheduler_harness import SchedulerHarness

MANIFEST = {
    row["name"]: row
    for row in tomllib.loads(files("jackfield_scheduler_policies").joinpath("plugin.toml").read_text())["plugin"]
}
NAMES = sorted(MANIFEST)
WITH_OPTIONS = [name for name in NAMES if "options" in MANIFEST[name]]
PUBLIC_INT32 = (
    "prompt_tokens computed output_tokens max_new_tokens cached_tokens priority tenant adapter retractions skips "
    "held_tokens"
)
POLICIES = pytest.mark.parametrize("name", NAMES)
COLUMNS: dict[str, type] = dict.fromkeys(PUBLIC_INT32.split(), np.int32) | {
    "uid": np.int64,
    "arrival": np.float64,
    "deadline": np.float64,
}


def make(name: str, **options: Any) -> SchedulePolicy:
    """As the core makes it."""
    (point,) = entry_points(group="jackfield.schedule_policy", name=name)
    model = None
    if "options" in MANIFEST[name]:
        module, _, attribute = MANIFEST[name]["options"].partition(":")
        model = getattr(importlib.import_module(module), attribute)(**options)
    context = PolicyContext(
        kind="schedule_policy",
        name=name,
        instance=name,
        options=model,
        max_running=4,
        page_size=1,
        total_slots=64,
    )
    made = point.load().jackfield_schedule_policy(context=context)
    assert isinstance(made, SchedulePolicy)
    return made


def harness(name: str, policy: SchedulePolicy | None = None, **settings: Any) -> SchedulerHarness:
    needs = frozenset(MANIFEST[name].get("needs", ()))
    return SchedulerHarness(policy=policy or make(name), policy_needs=needs, **settings)


class Table:
    """Random waiting requests. Columns are read-only, as the core's."""

    def __init__(self, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.count = count
        for name, dtype in COLUMNS.items():
            setattr(self, name, rng.integers(0, 50, count).astype(dtype))
        self.uid = np.sort(rng.choice(10 * count + 1, count, replace=False)).astype(np.int64) + 1
        self.priority = rng.integers(-(2**31), 2**31, count).astype(np.int32)
        self.tenant = rng.choice(np.array([0, 1, 5, 2**31 - 1], dtype=np.int32), count)
        self.max_new_tokens = self.output_tokens + rng.integers(0, 50, count).astype(np.int32)
        self.prompt_tokens = self.cached_tokens + rng.integers(1, 50, count).astype(np.int32)
        self.deadline[rng.random(count) < 0.5] = np.inf
        for name in COLUMNS:
            getattr(self, name).flags.writeable = False

    def __len__(self) -> int:
        return self.count


def view_of(table: Any, seed: int, *, with_forest: bool = True) -> SchedulerView:
    words = np.random.default_rng(seed).integers(0, 3, (len(table), 4)).tolist()
    paths = [[tuple(word[: i + 1]) for i in range(word[0] + word[1])] for word in words]
    return SchedulerView(
        now=60.0,
        seed=seed,
        step=3,
        free=50,
        evictable=10,
        total=100,
        page_size=1,
        max_running=8,
        max_prefill=64,
        forest=PrefixForest.from_paths(paths, np.array([len(path) for path in paths], dtype=np.int32))
        if with_forest
        else None,
    )


def test_manifest_and_entry_points_name_the_same_policies() -> None:
    installed = [
        point.name
        for point in distribution("jackfield-scheduler-policies").entry_points
        if point.group == "jackfield.schedule_policy"
    ]
    assert sorted(installed) == NAMES


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_options_of_another_policy_are_refused(name: str) -> None:
    (point,) = entry_points(group="jackfield.schedule_policy", name=name)
    context = PolicyContext(
        kind="schedule_policy", name=name, instance="mine", options=object(), max_running=4, page_size=1, total_slots=64
    )
    with pytest.raises(TypeError, match=r"mine wants \w+Options, got object"):
        point.load().jackfield_schedule_policy(context=context)


@POLICIES
@pytest.mark.parametrize("count", [0, 1, 2, 100, 2000])
@pytest.mark.parametrize("with_forest", [True, False])
def test_an_order_is_distinct_valid_rows_and_the_same_when_asked_twice(
    name: str, count: int, with_forest: bool
) -> None:
    for seed in range(3):
        policy, waiting = make(name), Table(count, seed)
        view = view_of(waiting, seed, with_forest=with_forest)
        before = {column: getattr(waiting, column).copy() for column in COLUMNS}
        # An order in between, over other requests, must leave no trace.
        first = policy.order(waiting, view)
        budget = policy.budget(view)
        policy.order(Table(7, seed + 1), view_of(Table(7, seed + 1), seed))
        second = policy.order(waiting, view)
        assert policy.budget(view) == budget
        if first is None:
            assert second is None
        else:
            assert first.dtype == np.intp
            assert sorted(first.tolist()) == list(range(count))
            assert second is not None
            assert first.tolist() == second.tolist()
        assert all(np.array_equal(getattr(waiting, column), values) for column, values in before.items())


class Watched(SchedulePolicy):
    """Hands everything on, and notes the most skips that any waiting request has."""

    def __init__(self, inner: SchedulePolicy) -> None:
        self.inner = inner
        self.most = 0

    def start(self, waiting: RequestTable, running: RequestTable, view: SchedulerView) -> None:
        self.inner.start(waiting, running, view)

    def budget(self, view: SchedulerView) -> StepBudget:
        return self.inner.budget(view)

    def order(self, waiting: RequestTable, view: SchedulerView) -> Any:
        self.most = max(self.most, int(waiting.skips.max(initial=0)))
        return self.inner.order(waiting, view)

    def observe(self, record: StepRecord) -> None:
        self.inner.observe(record)


@POLICIES
@pytest.mark.parametrize("places", [1, 3])
def test_nobody_is_passed_over_more_often_than_the_core_allows(name: str, places: int) -> None:
    rng = np.random.default_rng(places)
    policy = Watched(make(name))
    run = harness(name, policy, max_running_requests=places, max_skips=4, max_prefill_tokens=24)
    for i in range(150):
        run.submit(
            [int(rng.integers(3)) for _ in range(int(rng.integers(1, 30)))],
            max_new_tokens=int(rng.integers(1, 8)),
            priority=int(rng.integers(-5, 6)),
            tenant=(None, "a", "b")[i % 3],
            deadline=float(rng.integers(1, 50)) if i % 2 else None,
        )
        run.turn()
    run.run()
    assert policy.most <= 4
    assert policy.most == 4 or name in ("fcfs", "token-budget")  # those that reorder run into the bound
    assert all(answer.ids == run.expected(rid, len(answer.ids)) for rid, answer in run.answers.items())
    run.assert_at_rest()


@POLICIES
@settings(max_examples=15, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 40), st.integers(-3, 3), st.sampled_from([None, "a", "b"]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    places=st.integers(1, 4),
    page_size=st.sampled_from([1, 4]),
)
def test_every_request_gets_its_own_tokens(
    name: str, requests: list[tuple[int, int, str | None, bool]], places: int, page_size: int
) -> None:
    run = harness(name, max_running_requests=places, max_prefill_tokens=16, page_size=page_size)
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
        assert answer.ids == run.expected(rid, 3) or (
            rid in aborted and answer.ids == run.expected(rid, len(answer.ids))
        )
    run.assert_at_rest()


@POLICIES
def test_two_thousand_wait_in_a_scheduler(name: str) -> None:
    run = harness(name, max_running_requests=2, total_slots=512, check_invariants="off")
    for i in range(2000):
        run.submit([i % 7, i % 11, i % 13], max_new_tokens=2, priority=i % 5, tenant=str(i % 9), deadline=1.0 + i % 17)
    for _ in range(8):
        run.turn()
    assert sum(answer.finish is not None for answer in run.answers.values()) >= 4


def test_mixing_policies_are_the_ones_that_say_so() -> None:
    mixing = [name for name in NAMES if make(name).budget(view_of(Table(0, 0), 0)).decode is DecodeTurn.MIX]
    assert mixing == ["token-budget"]
