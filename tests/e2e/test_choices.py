"""n > 1 through the engine: order, seeds, a prompt that is computed once, ids, ends, and nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, tiny, without_tokenizer

PROMPTS = [list(range(10 * i, 10 * i + 100)) for i in range(3)]
FEW = {"max_new_tokens": 4, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture(scope="module", params=["inline", "processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with without_tokenizer(topology=request.param) as made:
        yield made
        assert_alive(made)


def computed(answers: list[Any]) -> int:
    """Prompt tokens that the worker computed."""
    return sum(one["meta_info"]["prompt_tokens"] - one["meta_info"]["cached_tokens"] for one in answers)


def test_one_prompt_with_three_answers_is_a_list_of_three(engine: Engine) -> None:
    answers = engine.generate(input_ids=PROMPTS[0], sampling_params={**FEW, "n": 3})
    assert [len(answer["output_ids"]) for answer in answers] == [4, 4, 4]
    assert len({tuple(answer["output_ids"]) for answer in answers}) > 1


@pytest.mark.parametrize("together", [False, True])
def test_b28_answers_are_prompt_major(together: bool) -> None:
    script = [[100 * i + j] * (i + 1) for i in range(3) for j in range(2)]
    with without_tokenizer(options={"worker.simulated": {"script": script}}) as engine:
        sampling: Any = {"max_new_tokens": 9, "temperature": 0, "n": 2}
        answers = engine.generate(input_ids=PROMPTS, sampling_params=sampling if together else [sampling] * 3)
        assert [answer["output_ids"][0] for answer in answers] == [0, 1, 100, 101, 200, 201]
        assert [len(answer["output_ids"]) for answer in answers] == [2, 2, 3, 3, 4, 4]  # with the end token


@pytest.mark.parametrize("loop", ["normal", "overlap"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(("cache", "once"), [("radix", True), ("chunk", False)])
def test_a_shared_prompt_is_computed_once_where_the_cache_shares(
    cache: str, once: bool, page_size: int, loop: str
) -> None:
    n, length = 5, len(PROMPTS[0])
    with without_tokenizer(cache_policy=cache, page_size=page_size, event_loop=loop) as engine:
        answers = engine.generate(input_ids=PROMPTS[0], sampling_params={**FEW, "n": n})
        # The last token of a prompt is always computed, and a page is shared whole.
        tail = length - (length - 1) // page_size * page_size
        assert computed(answers) == (length + (n - 1) * tail if once else n * length)
        assert_alive(engine)


def test_with_a_prompt_in_chunks_at_most_the_last_piece_is_computed_again() -> None:
    with without_tokenizer(max_prefill_tokens=24) as engine:
        answers = engine.generate(input_ids=PROMPTS[0], sampling_params={**FEW, "n": 5})
        assert [one["meta_info"]["cached_tokens"] for one in answers] == [0, 96, 96, 96, 96]
        assert_alive(engine)


def test_the_first_choice_is_what_n_of_one_gives_and_seeds_repeat(tiny_model: Any) -> None:
    sampling = {"max_new_tokens": 12, "temperature": 1.0, "ignore_eos": True, "seed": 7}
    with tiny(tiny_model) as engine:
        ids = [3, 4, 5, 6]
        single = engine.generate(input_ids=ids, sampling_params=sampling)["output_ids"]
        first, again = (
            [one["output_ids"] for one in engine.generate(input_ids=ids, sampling_params={**sampling, "n": 4})]
            for _ in range(2)
        )
        assert first == again
        assert first[0] == single
        assert len(set(map(tuple, first))) == 4
        greedy = engine.generate(input_ids=ids, sampling_params={**sampling, "temperature": 0, "n": 3})
        assert len({tuple(one["output_ids"]) for one in greedy}) == 1


def test_a_stream_grows_each_answer_and_ends_it_once(engine: Engine) -> None:
    ends: list[int] = []
    seen: dict[int, list[int]] = {}
    for answer in engine.generate(input_ids=PROMPTS[:2], sampling_params={**FEW, "n": 2}, stream=True):
        index = answer["index"]
        assert index not in ends
        assert answer["output_ids"][: len(seen.get(index, []))] == seen.get(index, [])
        seen[index] = answer["output_ids"]
        if answer["meta_info"]["finish_reason"] is not None:
            ends.append(index)
    assert sorted(ends) == [0, 1, 2, 3]
    assert [len(seen[i]) for i in range(4)] == [4] * 4


def test_b44_a_stream_that_is_closed_ends_all_choices(engine: Engine) -> None:
    long = {**FEW, "max_new_tokens": 4000, "n": 3}
    with engine.generate(input_ids=PROMPTS[0], sampling_params=long, stream=True) as stream:
        next(stream)
    assert_alive(engine)


def test_b46_ids_of_choices_are_derived_and_not_used_twice(engine: Engine) -> None:
    answers = engine.generate(input_ids=[3], sampling_params={**FEW, "n": 3}, rid="mine")
    assert [answer["meta_info"]["id"] for answer in answers] == ["mine-0", "mine-1", "mine-2"]
    assert engine.generate(input_ids=[3], sampling_params={**FEW, "n": 1}, rid="mine")["meta_info"]["id"] == "mine"
    for rids in (["a", "a"], ["a", "a-0"], ["a-1", "a"]):
        with pytest.raises(RequestError, match="rid is used twice"):
            engine.generate(input_ids=[[3], [4]], sampling_params={**FEW, "n": 2}, rid=rids)
    with engine.generate(
        input_ids=[3], sampling_params={**FEW, "max_new_tokens": 4000, "n": 2}, rid="mine", stream=True
    ) as stream:
        next(stream)
        for rid in ("mine", "mine-0", "mine-1"):
            with pytest.raises(RequestError, match="rid is used twice"):
                engine.generate(input_ids=[3], rid=rid)
        assert engine.generate(input_ids=[3], rid="mine-2", sampling_params=FEW)["meta_info"]["id"] == "mine-2"
    assert engine.generate(input_ids=[3], rid="mine", sampling_params=FEW)["meta_info"]["id"] == "mine"


def test_one_choice_that_fails_fails_the_call_and_ends_the_others() -> None:
    with (
        without_tokenizer(max_queued_requests=1, max_running_requests=1) as engine,
        pytest.raises(RequestError, match="queue is full") as refused,
    ):
        engine.generate(input_ids=PROMPTS[0], sampling_params={**FEW, "max_new_tokens": 4000, "n": 8})
    assert refused.value.status_code == 503
    with without_tokenizer(max_queued_requests=1, max_running_requests=1) as engine:
        with pytest.raises(RequestError, match="queue is full"):
            engine.generate(input_ids=PROMPTS[0], sampling_params={**FEW, "max_new_tokens": 4000, "n": 8})
        steps = engine.get_server_info()["scheduler"]["steps"]
        assert steps < 100  # and not the 4,000 of those that had got in
        assert_alive(engine)


def test_the_ceiling_of_a_call_is_the_one_of_its_prompts() -> None:
    with without_tokenizer(max_prompts_per_request=6) as engine:
        assert len(engine.generate(input_ids=PROMPTS, sampling_params={**FEW, "n": 2})) == 6
        with pytest.raises(RequestError, match=r"9 answers; at most 6") as refused:
            engine.generate(input_ids=PROMPTS, sampling_params={**FEW, "n": 3})
        assert refused.value.param == "n"
        with pytest.raises(RequestError, match="whole number from 1 to 128"):
            engine.generate(input_ids=PROMPTS[0], sampling_params={"n": 10**9})


def test_an_engine_takes_as_many_prompts_as_its_operator_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"max_new_tokens": 1, "temperature": 0}
    with without_tokenizer() as engine:
        assert len(engine.generate(input_ids=[[5]] * 1100, sampling_params=one)) == 1100
        assert len(engine.generate(input_ids=[[5]] * 600, sampling_params={**one, "n": 2})) == 1200
    monkeypatch.setenv("JACKFIELD_MAX_PROMPTS_PER_REQUEST", "2")
    with without_tokenizer() as engine, pytest.raises(RequestError, match="3 prompts; at most 2"):
        engine.generate(input_ids=[[5]] * 3, sampling_params=one)
