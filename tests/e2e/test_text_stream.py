"""Text as a client sees it: characters over several tokens, stop strings, end tokens. The simulated worker emits exactly the
text or ids that a case wants (FORCE); the tokenizer is the embedded model's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.e2e.engines import assert_alive, simulated

pytestmark = pytest.mark.model

SMILEY = "\N{GRINNING FACE}"
FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
IM_END = 2


def stream(engine: Any, **params: Any) -> list[dict[str, Any]]:
    return list(engine.generate("ABC", {"temperature": 0, "max_new_tokens": 200, **params}, stream=True))


def deltas(parts: list[dict[str, Any]]) -> list[str]:
    texts = ["", *(part["text"] for part in parts)]
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    return [after[len(before) :] for before, after in itertools.pairwise(texts)]


@pytest.mark.parametrize("interval", [1, 4])
def test_b01_no_replacement_marks_in_any_delta(interval: int) -> None:
    text = SMILEY * 3 + FAMILY + "漢字"
    with simulated(text) as engine:
        parts = stream(engine, stream_interval=interval)
        assert all("\ufffd" not in delta for delta in deltas(parts))
        assert parts[-1]["text"] == text
        assert engine.generate("ABC", {"temperature": 0})["text"] == text
        assert_alive(engine)


def test_b01_a_genuine_replacement_mark_flows() -> None:
    with simulated([[24211, 34, 24211]]) as engine:
        assert stream(engine)[0]["text"] == "\ufffd"
        assert engine.generate("ABC")["text"].count("\ufffd") == 2


@pytest.mark.parametrize("interval", [1, 3])
def test_b04_nothing_of_a_stop_string_is_shown(interval: int) -> None:
    with simulated("DEFGHIJK") as engine:
        parts = stream(engine, stop=["FGHIJ"], stream_interval=interval)
        assert all(not set("FGHIJK") & set(part["text"]) for part in parts)
        last = parts[-1]
        assert last["text"] == "DE"
        assert last["meta_info"]["finish_reason"] == {"type": "stop", "matched": "FGHIJ"}
        assert engine.generate("ABC", {"stop": "FGHIJ"})["text"] == "DE"
        assert engine.generate("ABC", {"stop": "FGHIJ", "no_stop_trim": True})["text"] == "DEFGHIJ"
        assert_alive(engine)


def test_b04_what_was_held_back_comes_when_it_was_no_stop() -> None:
    with simulated("DEFGHXY") as engine:
        parts = stream(engine, stop=["FGHIJ"])
        assert parts[-1]["text"] == "DEFGHXY"
        assert parts[-1]["meta_info"]["finish_reason"]["type"] == "stop"


def test_a_stop_string_beats_the_length_that_falls_on_the_same_token() -> None:
    with simulated("DEFG") as engine:
        count = len(engine.generate("ABC")["output_ids"]) - 1
        answer = engine.generate("ABC", {"stop": "G", "max_new_tokens": count})
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "G"}
        assert answer["text"] == "DEF"


def test_b13_an_end_token_shows_and_cuts_nothing() -> None:
    with simulated("Hello there") as engine:
        for params in ({}, {"skip_special_tokens": False}, {"no_stop_trim": True}):
            answer = engine.generate("ABC", params)
            assert answer["text"] == "Hello there"
            assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": IM_END}
        shown = engine.generate("ABC", {"no_stop_trim": True, "skip_special_tokens": False})
        assert shown["text"] == "Hello there<|im_end|>"
        by_id = engine.generate("ABC", {"ignore_eos": True, "stop_token_ids": [IM_END], "max_new_tokens": 20})
        assert by_id["text"] == "Hello there"
        assert by_id["output_ids"][-1] == IM_END
        assert_alive(engine)


def test_ids_end_with_the_token_that_completed_the_stop() -> None:
    with simulated("one two three four") as engine:
        answer = engine.generate("ABC", {"stop": " three"})
        assert answer["text"] == "one two"
        assert len(answer["output_ids"]) == answer["meta_info"]["completion_tokens"] == 3
