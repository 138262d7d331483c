"""The loop over a real scheduler with a fake worker."""

from __future__ import annotations

import pytest
from turns_loop.options import TurnsOptions
from turns_loop.plugin import TurnsLoop

from jackfield.hookspecs import StepOutcome
from jackfield.testing.scheduler_harness import SchedulerHarness


@pytest.mark.parametrize("decodes", [1, 3])
def test_an_answer_goes_on_between_the_prefills_of_a_crowd(decodes: int) -> None:
    harness = SchedulerHarness(max_prefill_tokens=40, max_running_requests=8)
    loop = TurnsLoop(TurnsOptions(decodes=decodes), harness.scheduler)
    first = harness.submit([1, 2, 3], max_new_tokens=30)
    loop.step()
    crowd = [harness.submit([n] * 40, max_new_tokens=2) for n in range(4, 9)]
    gained = []
    while not all(rid in harness.answers and harness.answers[rid].finish for rid in crowd):
        before = len(harness.answers[first].ids) if first in harness.answers else 0
        loop.step()
        harness.collect()
        gained.append(len(harness.answers[first].ids) - before)
    # 1 for a step of decode, 0 for one of prefill: never two prefills in a row.
    pattern = "".join(map(str, gained[1:]))
    assert "00" not in pattern
    assert "1" * decodes + "0" in pattern
    while loop.step() is StepOutcome.RAN:
        pass
    harness.collect()
    for rid, answer in harness.answers.items():
        assert answer.ids == harness.expected(rid, 30 if rid == first else 2)
    harness.assert_at_rest()
