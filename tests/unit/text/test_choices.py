"""How many answers a call asks for (B85), and what tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.choices import (
    asks_for_several,
    choice_label,
    choice_seed,
    choices_asked,
)
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.fields.sampling_params import check_defaults
from jackfield.managers.requests.generate_request import GenerateRequest

MAX_N = DEFAULT_LIMITS.max_choices


def most_together(most: int) -> RequestLimits:
    return RequestLimits(max_prompts_per_request=most)


def refused(*sampling: dict[str, Any], most: int = 1024) -> RequestError:
    with pytest.raises(RequestError) as caught:
        choices_asked(sampling, most_together(most))
    assert caught.value.status_code == 400
    assert len(caught.value.message) < 400
    return caught.value


def test_absent_null_and_one_are_one() -> None:
    assert choices_asked([{}, {"n": None}, {"n": 1}], most_together(3)) == 1
    assert choices_asked([{"n": 4, "best_of": 4}, {"n": 4}], most_together(8)) == 4
    assert choices_asked([], most_together(8)) == 1


@pytest.mark.parametrize("bad", [0, -1, MAX_N + 1, 10**9, 10**30, True, 2.0, "2", [2], {}])
@pytest.mark.parametrize("name", ["n", "best_of"])
def test_b85_the_ceiling_and_the_type(name: str, bad: Any) -> None:
    assert refused({name: bad}).param == name


def test_a_call_is_bounded_as_a_whole() -> None:
    assert choices_asked([{"n": 4}] * 8, most_together(32)) == 4
    told = refused(*[{"n": 4}] * 9, most=32)
    assert told.param == "n"
    assert "36" in told.message and "32" in told.message and "--max-prompts-per-request" in told.message  # noqa: PT018
    # Without choices the bound is that of the prompts, which is not looked at here.
    assert choices_asked([{}] * 100, most_together(32)) == 1


def test_all_prompts_have_the_same_n_and_best_of_says_nothing_else() -> None:
    assert refused({"n": 2}, {"n": 3}).param == "n"
    assert refused({"n": 2}, {}).param == "n"
    assert refused({"n": 2, "best_of": 3}).param == "best_of"
    assert refused({"best_of": 3}).param == "best_of"


def test_the_first_choice_has_the_seed_itself_and_the_others_seeds_of_their_own() -> None:
    for seed in (0, 1, -1, 2**63 - 1, -(2**63)):
        seeds = [choice_seed(seed, j) for j in range(MAX_N)]
        assert seeds[0] == seed
        assert len(set(seeds)) == MAX_N
        assert all(one is not None and -(2**63) <= one < 2**63 for one in seeds)
        assert seeds == [choice_seed(seed, j) for j in range(MAX_N)]
    assert choice_seed(5, 3) != choice_seed(6, 3)
    assert choice_seed(None, 3) is None


def test_labels() -> None:
    assert choice_label("mine", 0, 1) == "mine"
    assert [choice_label("mine", j, 2) for j in range(2)] == ["mine-0", "mine-1"]


@pytest.mark.parametrize(
    ("sampling", "several"),
    [(None, False), ({}, False), ({"n": 1}, False), ({"n": 2}, True), ([{"n": 2}], True), ([], False), ("x", False),
     ({"n": True}, False), ({"n": "2"}, False), (7, False)],
)  # fmt: skip
def test_several_answers_to_one_prompt_come_as_a_list(sampling: Any, several: bool) -> None:
    assert asks_for_several(sampling) is several
    assert GenerateRequest(prompt="x", sampling_params=sampling).is_batch is several


def test_n_can_have_no_default() -> None:
    check_defaults({"n": 1})
    with pytest.raises(ConfigurationError, match="n is a client's"):
        check_defaults({"n": 2})
