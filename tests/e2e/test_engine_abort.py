"""`Engine.abort`: requests are ended by their id, from outside of whoever waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jackfield import Engine
from tests.e2e.engines import assert_alive, without_tokenizer

LONG = {"temperature": 0, "max_new_tokens": 400, "ignore_eos": True}


@pytest.fixture(scope="module", params=["inline", "processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with without_tokenizer(context_length=512, max_total_tokens=4096, topology=request.param) as engine:
        yield engine


def test_an_abort_ends_the_request_of_that_id_and_no_other(engine: Engine) -> None:
    streams = {
        rid: engine.generate(input_ids=[i, 4, 5], sampling_params=LONG, rid=rid, stream=True)
        for i, rid in enumerate(("a", "a1"), start=6)
    }
    for stream in streams.values():
        next(iter(stream))
    assert engine.abort("a", message="enough") == 1
    *_, last = streams["a"]
    assert last["meta_info"]["finish_reason"] == {"type": "abort", "message": "enough"}
    assert len(last["output_ids"]) < 400
    *_, other = streams["a1"]
    assert other["meta_info"]["finish_reason"] == {"type": "length", "length": 400}
    assert_alive(engine)


def test_an_abort_ends_all_choices_and_abort_all_everything(engine: Engine) -> None:
    choices = engine.generate(input_ids=[8, 4, 5], sampling_params={**LONG, "n": 3}, rid="c", stream=True)
    single = engine.generate(input_ids=[9, 4, 5], sampling_params=LONG, stream=True)
    next(iter(choices))
    next(iter(single))
    assert engine.abort("c") == 3
    assert engine.abort(abort_all=True) == 1
    assert engine.abort(abort_all=True) == 0
    ends = [answer["meta_info"]["finish_reason"] for answer in (*choices, *single)]
    assert [end["type"] for end in ends if end is not None] == ["abort"] * 4
    assert_alive(engine)


def test_an_unknown_id_is_nobody_and_one_of_the_two_must_be_given(engine: Engine) -> None:
    assert engine.abort("never seen") == 0
    for wrong in ({}, {"rid": "a", "abort_all": True}):
        with pytest.raises(ValueError, match="exactly one"):
            engine.abort(**wrong)
