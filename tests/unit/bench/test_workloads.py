"""What is asked for is fixed: other engines are measured with the very same prompts."""

from __future__ import annotations

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.token_ids import HIGH, LOW, token_ids
from jackfield.entrypoints.bench.workloads import WARM_UP, WORKLOADS, workload


def test_the_ids_are_those_of_the_rule() -> None:
    """The numbers come from a program of its own, which measures other engines."""
    assert token_ids(5, 7919) == [27229, 19385, 8022, 22078, 29981]
    assert token_ids(3, 1_000_003) == [24778, 14930, 43465]
    assert sum(WORKLOADS["prefix"].prompts(1)[31]) == 12454847
    assert WORKLOADS["batch"].prompts(2)[5][:3] == [2834, 31487, 12730]


def test_ids_are_ordinary_ones_of_the_vocabulary() -> None:
    many = token_ids(5000, 3)
    assert min(many) >= LOW
    assert max(many) < HIGH
    small = token_ids(5000, 3, vocab_size=128)
    assert (min(small), max(small)) == (3, 127)
    assert token_ids(3, 1, vocab_size=1) == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "requests", "prompt", "new", "shared"),
    [
        ("decode", 1, 128, 128, 0),
        ("prefill", 1, 1024, 1, 0),
        ("batch", 32, 256, 128, 0),
        ("prefix", 32, 544, 64, 512),
        ("first", 1, 16, 1, 0),
    ],
)
def test_the_named_ones(name: str, requests: int, prompt: int, new: int, shared: int) -> None:
    work = WORKLOADS[name]
    prompts = work.prompts(0)
    assert (len(prompts), {len(ids) for ids in prompts}, work.new_tokens) == (requests, {prompt}, new)
    assert len({tuple(ids[:shared]) for ids in prompts}) == 1
    if requests > 1:
        assert (
            len({ids[shared] for ids in prompts}) > requests // 2
        )  # what is not shared differs from its first token on


def test_no_round_can_find_anything_of_another_in_a_cache() -> None:
    work = workload("prefix", requests=3)
    first_tokens = {tuple(work.prompts(number)[0][:4]) for number in (0, 1, 2, WARM_UP)}
    assert len(first_tokens) == 4


def test_a_warm_up_is_a_whole_round_of_one_request_and_a_short_one_of_many() -> None:
    prompts, new = WORKLOADS["decode"].warm_up()
    assert (prompts, new) == (WORKLOADS["decode"].prompts(WARM_UP), 128)
    prompts, new = WORKLOADS["batch"].warm_up()
    assert (prompts, new) == (WORKLOADS["batch"].prompts(WARM_UP)[:8], 8)


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("batch", {"shared_prefix_tokens": 300}, "300 is more than the 256 tokens of a prompt"),
        ("decode", {"requests": 2}, "for another shape take --workload batch"),
        ("decode", {"new_tokens": 1}, "--new-tokens of 2 or more"),
        ("prefill", {"requests": 2}, "it needs --requests 1"),
        ("first", {"new_tokens": 2}, "cannot be changed"),
        ("batch", {"requests": 0}, "--requests is 0"),
        ("batch", {"shared_prefix_tokens": -1}, "--shared-prefix-tokens is -1"),
    ],
)
def test_a_shape_that_measures_something_else_is_refused(name: str, changes: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        workload(name, **changes)


def test_the_flags_change_the_counts_that_are_given() -> None:
    work = workload("batch", requests=2, prompt_tokens=None, new_tokens=5, shared_prefix_tokens=None)
    assert (work.requests, work.prompt_tokens, work.new_tokens) == (2, 256, 5)
