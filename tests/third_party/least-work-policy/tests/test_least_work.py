"""A policy sees columns and a view, so its tests need nothing else."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from least_work_policy.options import LeastWorkOptions
from least_work_policy.policy import LeastWork
from pydantic import ValidationError

from jackfield.testing.scheduler_harness import SchedulerHarness

VIEW: Any = types.SimpleNamespace(now=10.0)


def table(**columns: list[float]) -> Any:
    n = len(columns["prompt_tokens"])
    base = {
        name: np.zeros(n, dtype=np.int32)
        for name in ("output_tokens", "cached_tokens", "max_new_tokens", "priority", "prompt_tokens")
    }
    base |= {"uid": np.arange(n), "arrival": np.full(n, 10.0)}
    return types.SimpleNamespace(**(base | {name: np.array(values) for name, values in columns.items()}))


def order(waiting: Any, **options: float) -> list[int]:
    return LeastWork(LeastWorkOptions(**options)).order(waiting, VIEW).tolist()


def test_prompt_cache_and_output_cap_make_the_work() -> None:
    waiting = table(prompt_tokens=[100, 300, 90], cached_tokens=[0, 290, 0], max_new_tokens=[10, 10, 40])
    assert order(waiting) == [1, 0, 2]
    assert order(waiting, output_weight=0) == [1, 2, 0]


def test_waiting_takes_work_off() -> None:
    waiting = table(prompt_tokens=[500, 100], arrival=[0.0, 9.0])
    assert order(waiting, patience=0) == [1, 0]
    assert order(waiting, patience=50) == [0, 1]


def test_priority_counts_first_and_age_last() -> None:
    waiting = table(prompt_tokens=[10, 10, 10, 900], priority=[0, -(2**31), 0, 1])
    assert order(waiting) == [3, 0, 2, 1]


def test_a_misspelt_option_is_refused() -> None:
    with pytest.raises(ValidationError, match="patiense"):
        LeastWorkOptions.model_validate({"patiense": 1.0})


def test_in_a_real_scheduler_with_a_fake_worker() -> None:
    """One place to run in: who waits is served in the policy's order, what the cache holds counted, and all is answered."""
    harness = SchedulerHarness(
        policy=LeastWork(LeastWorkOptions(patience=0)),
        page_size=4,
        max_running_requests=1,
        policy_needs=frozenset({"cached_tokens"}),
    )
    first = harness.submit(list(range(80)), max_new_tokens=2)
    harness.run()
    long = harness.submit(list(range(200, 260)), max_new_tokens=2)
    short = harness.submit(list(range(300, 330)), max_new_tokens=2)
    cached = harness.submit(list(range(80)), max_new_tokens=2)
    served = [first]
    while len(served) < 4:
        harness.turn()
        served += [rid for rid, answer in harness.answers.items() if answer.finish and rid not in served]
    assert served == [first, cached, short, long]
    for rid, answer in harness.answers.items():
        assert answer.ids == harness.expected(rid, 2)
    harness.run()
    harness.assert_at_rest()
