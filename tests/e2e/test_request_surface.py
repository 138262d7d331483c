"""Numbers at the edge of what the model's arithmetic holds (B62 B66 B67): no client makes the model fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, tiny, without_tokenizer

GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Iterator[Engine]:
    with tiny(tiny_model) as up:
        yield up
        assert_alive(up)


def test_b62_a_temperature_beyond_float32_draws_only_what_is_allowed(engine: Engine) -> None:
    alone = engine.generate(input_ids=[5, 6, 7], sampling_params=GREEDY)["output_ids"]
    hot = {"temperature": 1e308, "max_new_tokens": 6, "seed": 1, "min_new_tokens": 6, "stop_token_ids": [*range(127)]}
    answers = engine.generate(input_ids=[[5, 6, 7], [5, 6, 7]], sampling_params=[hot, GREEDY])
    assert answers[0]["output_ids"] == [127] * 6
    assert answers[1]["output_ids"] == alone


@pytest.mark.parametrize("temperature", [0, 1e-5, 1.0])
def test_b66_the_least_repetition_penalty_is_a_penalty_and_no_failure(engine: Engine, temperature: float) -> None:
    sampling: dict[str, Any] = {**GREEDY, "temperature": temperature, "seed": 3, "repetition_penalty": 1e-6}
    answer = engine.generate(input_ids=[5, 6, 7], sampling_params=sampling)
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 6}


def test_b85_settings_for_many_prompts_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from jackfield.managers.requests import builder

    checked = []

    def counting(given: Any, **more: Any) -> Any:
        checked.append(given)
        return make_sampling_params(given, **more)

    make_sampling_params = builder.make_sampling_params
    monkeypatch.setattr(builder, "make_sampling_params", counting)
    with without_tokenizer() as engine:
        checked.clear()
        one = {"max_new_tokens": 1}
        assert len(engine.generate(input_ids=[[5, 6]] * 50, sampling_params=one)) == 50
        assert checked == [one]
        assert len(engine.generate(input_ids=[[5, 6]] * 2, sampling_params=[{"max_new_tokens": 1}, one])) == 2
        assert len(checked) == 3


def test_b85_a_pattern_is_made_once() -> None:
    from jackfield.managers.fields.sampling_params import make_sampling_params
    from jackfield.managers.text.stop_regex import made_once

    made_once.cache_clear()
    for _ in range(3):
        make_sampling_params({"stop_regex": ["\\p{L}{1,40}", "b{3}"]}, defaults={}, vocab_size=100)
    assert made_once.cache_info().misses == 2


def test_an_id_that_is_no_text_is_refused_and_leaves_nothing_open() -> None:
    with without_tokenizer() as engine:
        session = engine.open_session()
        for more in ({"rid": "\ud800"}, {"rid": "\ud800", "session_params": {"id": session}}):
            with pytest.raises(RequestError) as refused:
                engine.generate(input_ids=[5, 6], sampling_params={"max_new_tokens": 1}, **more)  # type: ignore[arg-type]
            assert refused.value.param == "rid"
        engine.generate(input_ids=[5], sampling_params={"max_new_tokens": 1}, session_params={"id": session})
        assert_alive(engine)
