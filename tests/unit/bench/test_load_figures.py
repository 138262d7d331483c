from __future__ import annotations

from typing import Any

import pytest

from jackfield.entrypoints.bench.load_figures import Limits, figures, results
from jackfield.entrypoints.bench.streams import AT_END, BY_CHUNK, Answer


def answer(due: float, *arrivals: tuple[float, float], ended: float = 0.0, **fields: Any) -> Answer:
    given = {"sent": due, "wanted": 4, "counted": BY_CHUNK, "prompt_tokens": 10, **fields}
    return Answer(due=due, ended=ended, arrivals=list(arrivals), **given)


def one_and_another() -> list[Answer]:
    return [
        answer(10.0, (10.5, 1), (10.7, 2), (11.0, 1), ended=11.25, cached_tokens=3),
        answer(10.5, (11.5, 2), (12.0, 2), ended=12.0, sent=10.75, counted=AT_END),
    ]


def test_each_figure_of_a_round() -> None:
    told = figures(one_and_another(), Limits())
    assert told["seconds"] == 2.0
    assert (told["output_tokens"], told["prompt_tokens"], told["cached_tokens"]) == (8, 20, 3)
    assert (told["output_tokens_per_s"], told["total_tokens_per_s"], told["requests_per_s"]) == (4.0, 14.0, 1.0)
    assert told["tokens_per_arrival"] == 8 / 5
    assert told["counted_by"] == {BY_CHUNK: 1, AT_END: 1}
    assert (told["ttft_ms"]["p50"], told["ttft_ms"]["max"]) == (500.0, 1000.0)
    assert (told["e2e_ms"]["p50"], told["e2e_ms"]["max"]) == (1250.0, 1500.0)
    assert told["late_ms"]["max"] == 250.0
    assert "goodput_per_s" not in told


def test_tokens_that_come_together_share_the_gap_before_them() -> None:
    told = figures(one_and_another()[:1], Limits())
    assert told["gap_ms"]["mean"] == pytest.approx((200 + 300) / 2)
    # 200 ms for two tokens, 300 ms for one
    assert told["itl_ms"]["p50"] == pytest.approx(100)
    assert told["itl_ms"]["mean"] == pytest.approx(500 / 3)
    assert told["tpot_ms"]["p50"] == pytest.approx(500 / 3)


def test_the_first_arrivals_tokens_are_not_paid_for_by_the_time_after_it() -> None:
    told = figures(one_and_another()[1:], Limits())
    assert told["tpot_ms"]["p50"] == told["itl_ms"]["p50"] == 250.0


def test_one_arrival_has_no_time_between_tokens() -> None:
    told = figures([answer(1.0, (2.0, 4), ended=2.0)], Limits(tpot_ms=1.0))
    assert (told["itl_ms"], told["tpot_ms"], told["gap_ms"]) == (None, None, None)
    assert told["goodput_per_s"] == 1.0
    assert "itl_ms_p50" not in results([told])


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft_ms": 500.0}, 1),
        ({"ttft_ms": 499.0}, 0),
        ({"ttft_ms": 1000.0}, 2),
        ({"ttft_ms": 1000.0, "tpot_ms": 200.0}, 1),
        ({"tpot_ms": 300.0, "e2e_ms": 1400.0}, 1),
        ({"e2e_ms": 1500.0}, 2),
    ],
)
def test_goodput(limits: dict[str, float], good: int) -> None:
    told = figures(one_and_another(), Limits(**limits))
    assert (told["goodput_per_s"], told["good_share"]) == (good / 2.0, good / 2)


def test_failures_are_counted_by_kind_and_give_no_tokens() -> None:
    failed = [
        answer(9.0, ended=10.0, failure=("HTTP 503", "full")),
        answer(10.0, (10.5, 3), ended=13.0, failure=("broken off", "reset")),
        answer(10.0, ended=10.0, failure=("HTTP 503", "still full")),
    ]
    told = figures([*one_and_another(), *failed], Limits(e2e_ms=1e9))
    assert told["failures"] == {
        "HTTP 503": {"count": 2, "first": "full"},
        "broken off": {"count": 1, "first": "reset"},
    }
    assert (told["requests"], told["completed"], told["output_tokens"], told["seconds"]) == (5, 2, 8, 4.0)
    assert (told["requests_per_s"], told["goodput_per_s"], told["good_share"]) == (0.5, 0.5, 0.4)


def test_nothing_but_failures() -> None:
    told = figures([answer(1.0, ended=2.0, failure=("timeout", "t"))], Limits())
    assert (told["completed"], told["ttft_ms"], told["tokens_per_arrival"]) == (0, None, None)
    assert results([told])["output_tokens_per_s"]["value"] == 0


def test_short_answers_are_told() -> None:
    assert figures([answer(1.0, (2.0, 3), ended=2.0), *one_and_another()], Limits())["short_answers"] == 1


def test_a_server_that_tells_no_prompt_tokens_has_no_total() -> None:
    told = figures([*one_and_another(), answer(10.0, (11.0, 4), ended=12.0, prompt_tokens=None)], Limits())
    assert told["prompt_tokens"] is None
    assert "total_tokens_per_s" not in results([told])


def test_medians_over_the_rounds() -> None:
    rounds = [figures(one_and_another(), Limits()) for _ in range(3)]
    for number, one in enumerate(rounds):
        one["output_tokens_per_s"] = (4.0, 8.0, 5.0)[number]
        one["ttft_ms"] = {**one["ttft_ms"], "p99": (30.0, 10.0, 20.0)[number]}
    told = results(rounds)
    assert told["output_tokens_per_s"]["value"] == 5.0
    assert (told["ttft_ms_p99"]["value"], told["ttft_ms_p99"]["better"], told["ttft_ms_p99"]["unit"]) == (
        20.0,
        "lower",
        "ms",
    )
