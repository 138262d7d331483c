"""How much of the outputs to come is reserved: the tracker, and the arithmetic over the running requests' columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.managers.requests.capacity import kv_tokens
from jackfield.managers.scheduler.new_token_ratio import CLIP, DECAY_STEPS, NewTokenRatio
from jackfield.managers.scheduler.running import RunningTable, expected_end
from jackfield.testing.scheduler_harness import SchedulerHarness


@pytest.mark.parametrize("conservativeness", [0.3, 1.0, 2.0])
def test_it_decays_to_its_floor_in_so_many_decode_steps(conservativeness: float) -> None:
    ratio = NewTokenRatio(conservativeness)
    assert ratio.value == pytest.approx(0.7 * conservativeness)
    values = []
    for _ in range(DECAY_STEPS + 5):
        ratio.decoded()
        values.append(ratio.value)
    assert values[299] == pytest.approx((0.7 + 0.7 * 0.14) / 2 * conservativeness)
    assert values[DECAY_STEPS - 2] > ratio.floor
    assert values[DECAY_STEPS:] == [pytest.approx(0.7 * 0.14 * conservativeness)] * 5
    ratio.reset()
    assert ratio.value == pytest.approx(0.7 * conservativeness)


def test_after_a_retraction_it_is_what_the_others_have_decoded_and_twenty_steps_more() -> None:
    ratio = NewTokenRatio(1.0)
    ratio.retracted(running=2, output_tokens=30, max_new_tokens=199)
    assert ratio.value == pytest.approx((30 + 40) / 200)
    ratio.retracted(running=2, output_tokens=190, max_new_tokens=199)
    assert ratio.value == 1.0
    ratio.retracted(running=1, output_tokens=0, max_new_tokens=100_000)
    assert ratio.value == ratio.floor


@pytest.mark.parametrize(("conservativeness", "never"), [(1.0, False), (10.2, False), (10.3, True)])
def test_from_where_on_nobody_is_ever_retracted(conservativeness: float, never: bool) -> None:
    assert NewTokenRatio(conservativeness).never_retracts is never


@given(prompt=st.integers(1, 9000), sampled=st.integers(0, 9000), left=st.integers(0, 9000), ratio=st.floats(0.01, 2))
def test_the_expected_end_lies_between_what_is_known_and_the_worst_case(
    prompt: int, sampled: int, left: int, ratio: float
) -> None:
    if sampled == 0 and left == 0:
        left = 1
    known = prompt + sampled
    (end,) = expected_end(np.array([known], dtype=np.int32), np.array([left], dtype=np.int32), ratio).tolist()
    worst = kv_tokens(prompt, sampled + left) if left else known
    assert known <= end <= worst
    if ratio >= 1:
        assert end == worst
    else:
        assert end - known == max(0, int(np.ceil(min(left, CLIP) * ratio)) - 1)


def test_promises_are_whole_pages_beyond_what_is_allocated() -> None:
    table = RunningTable(5)
    # prompt 10, 4 of 20 outputs launched, 16 slots: half of the 16 to come are expected, 14 + 8 - 1 tokens
    table.append({"row": 1, "prompt_tokens": 10, "sampled": 4, "max_new_tokens": 20, "allocated": 16})
    # a prompt cut after 8 of its 30 tokens: all of it, and the first of the two outputs that are expected
    table.append({"row": 2, "prompt_tokens": 30, "max_new_tokens": 4, "allocated": 8})
    # has more than is expected
    table.append({"row": 3, "prompt_tokens": 3, "sampled": 1, "max_new_tokens": 2, "allocated": 8})
    # all its tokens are launched: the last one is never computed
    table.append({"row": 1, "prompt_tokens": 28, "sampled": 5, "max_new_tokens": 5, "allocated": 32})
    assert table.promises(0.5, 8).tolist() == [8, 24, 0, 0]
    assert table.promises(0.5, 1).tolist() == [5, 23, 0, 0]
    assert table.promises(1.0, 8).tolist() == [16, 32, 0, 0]


def test_admission_reserves_the_prompt_and_a_share_of_the_outputs() -> None:
    run = SchedulerHarness(total_slots=64)
    run.submit([1] * 20, max_new_tokens=20)  # 20 + 14 - 1
    run.submit([2] * 17, max_new_tokens=20)  # 17 + 14 - 1: 63 of 64
    run.submit([3], max_new_tokens=3)  # 1 + 3 - 1
    run.turn()
    state = run.scheduler.state()
    assert (state.running, state.waiting) == (2, 1)


def test_the_ratio_is_forgotten_when_nothing_is_open() -> None:
    run = SchedulerHarness()
    run.submit([1, 2, 3], max_new_tokens=30)
    for _ in range(10):
        run.turn()
    assert run.scheduler.state().new_token_ratio < 0.7
    run.run()
    assert run.scheduler.state().new_token_ratio == pytest.approx(0.7)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_a_conservativeness_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="schedule_conservativeness"):
        SchedulerHarness(schedule_conservativeness=value)


def test_the_ratio_is_forgotten_with_the_step_that_ends_the_last_one() -> None:
    """Nobody needs to take a further turn: whoever comes next finds the ratio of a scheduler that has just started."""
    run = SchedulerHarness(total_slots=60, context_length=64, schedule_conservativeness=0.1)
    for i in range(2):
        run.submit([i] * 20, max_new_tokens=40)
    while len(run.answers) < 2 or any(answer.finish is None for answer in run.answers.values()):
        run.turn()
        assert run.scheduler.state().retractions or run.scheduler.state().new_token_ratio <= 0.07
    assert run.scheduler.state().retractions > 0
    assert run.scheduler.state().new_token_ratio == pytest.approx(0.07)
