"""Sessions through the engine: the same answers as the whole context sent by hand, at the price of what is new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, simulated, tiny, without_tokenizer

TURNS = [list(range(3, 60)), [7, 8, 9], list(range(20, 31))]
GREEDY = {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True}
LONG = {"max_new_tokens": 4000, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module", params=["inline", "processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with without_tokenizer(topology=request.param) as made:
        yield made
        assert len(made._runtime.tokenizer_manager.sessions) == 0
        assert_alive(made)


def say(engine: Engine, session: str, ids: list[int], sampling: Any = GREEDY, **more: Any) -> Any:
    how: dict[str, Any] = {key: more.pop(key) for key in ("offset", "replace", "drop_previous_output") if key in more}
    how["rid"] = more.pop("after", None)
    return engine.generate(input_ids=ids, sampling_params=sampling, session_params={"id": session, **how}, **more)


def test_turns_are_the_whole_context_and_cost_what_is_new(tiny_model: Any) -> None:
    with tiny(tiny_model) as engine, tiny(tiny_model) as fresh:
        session = engine.open_session(max_tokens=1000)
        context: list[int] = []
        for number, ids in enumerate(TURNS):
            answer = say(engine, session, ids)
            known = len(context)
            context += ids
            by_hand = fresh.generate(input_ids=context, sampling_params=GREEDY)
            assert answer["output_ids"] == by_hand["output_ids"]
            assert answer["meta_info"]["prompt_tokens"] == len(context)
            # All that was computed before comes from the cache: all but the last token of the last answer.
            assert answer["meta_info"]["cached_tokens"] == (known - 1 if number else 0)
            context += answer["output_ids"]
        assert engine.close_session(session)
        assert_alive(engine)


def test_branch_cut_drop_and_replace(engine: Engine) -> None:
    session = engine.open_session()
    first = say(engine, session, TURNS[0], rid="one")
    one = len(TURNS[0])
    say(engine, session, TURNS[1], rid="two")
    branch = say(engine, session, TURNS[1], rid="other", after="one")
    assert branch["meta_info"]["prompt_tokens"] == one + 6 + 3
    assert branch["meta_info"]["cached_tokens"] == one + 6 + 3 - 1  # "two" computed the same
    assert say(engine, session, [5], after="two", offset=10)["meta_info"]["prompt_tokens"] == 11
    dropped = say(engine, session, [5], after="one", drop_previous_output=True)
    assert dropped["meta_info"]["prompt_tokens"] == one + 1
    say(engine, session, [5], after="one", replace=True, rid="instead")
    with pytest.raises(RequestError, match="no turn of the rid 'two'"):
        say(engine, session, [5], after="two")
    assert say(engine, session, [6])["meta_info"]["prompt_tokens"] == one + 6 + 1 + 6 + 1
    assert say(engine, session, [6], replace=True)["meta_info"]["prompt_tokens"] == 1
    assert first["meta_info"]["id"] == "one"
    engine.close_session(session)


def test_an_aborted_turn_leaves_the_session_as_it_was(engine: Engine) -> None:
    session = engine.open_session()
    say(engine, session, TURNS[0], rid="one")
    with say(engine, session, [5], LONG, rid="two", stream=True, after="one", replace=True) as stream:
        next(stream)
        with pytest.raises(RequestError, match="'two' of this session is still running"):
            say(engine, session, [6])
        with pytest.raises(RequestError, match="'two' of this session is still running"):
            say(engine, session, [6], after="two")
    assert say(engine, session, [6], rid="two")["meta_info"]["prompt_tokens"] == len(TURNS[0]) + 6 + 1
    engine.close_session(session)


def test_a_refused_turn_leaves_nothing(engine: Engine) -> None:
    session = engine.open_session(max_tokens=20)
    for bad, param in (
        ({"ids": [5] * 15}, "session_params"),
        ({"ids": [5], "rid": ["a", "b"]}, "rid"),
        ({"ids": [-1]}, "input_ids"),
        ({"ids": [5], "sampling": {"temperature": -1}}, "temperature"),
        ({"ids": [5], "sampling": {**GREEDY, "n": 2}}, "session_params"),
        ({"ids": [[5]]}, "session_params"),
    ):
        call: dict[str, Any] = dict(bad)
        with pytest.raises(RequestError) as refused:
            say(engine, session, **call)
        assert refused.value.param == param
    assert say(engine, session, [5] * 14)["meta_info"]["prompt_tokens"] == 14
    engine.close_session(session)
    with pytest.raises(RequestError, match="no session"):
        say(engine, session, [5])
    with pytest.raises(RequestError, match="no session"):
        engine.close_session(session)


def test_closing_waits_for_the_running_turn(engine: Engine) -> None:
    session = engine.open_session()
    with say(engine, session, [5], LONG, stream=True) as stream:
        next(stream)
        assert engine.close_session(session) is False
        with pytest.raises(RequestError, match="being closed"):
            say(engine, session, [6])
    assert len(engine._runtime.tokenizer_manager.sessions) == 0


def test_salts_are_the_clients_choice(engine: Engine) -> None:
    session = engine.open_session()
    fresh = list(range(500, 560))
    say(engine, session, fresh, rid="a", cache_salt="mine")
    assert say(engine, session, [5], after="a")["meta_info"]["cached_tokens"] == 0
    assert say(engine, session, [5], after="a", cache_salt="mine")["meta_info"]["cached_tokens"] == 65
    engine.close_session(session)


def test_texts_go_on_and_a_stop_string_is_part_of_the_context() -> None:
    with simulated(["One two. Three", "four"]) as engine:
        session = engine.open_session()
        first = engine.generate("Count:", {"temperature": 0, "stop": "."}, session_params={"id": session})
        assert first["text"] == "One two"
        second = engine.generate(" And", {"temperature": 0}, session_params={"id": session})
        assert engine.tokenizer is not None
        whole = engine.tokenizer.encode("Count:") + first["output_ids"] + engine.tokenizer.encode(" And")
        assert second["meta_info"]["prompt_tokens"] == len(whole)
        engine.close_session(session)
        assert_alive(engine)


def test_a_beginning_token_stands_once() -> None:
    with simulated() as engine:
        manager = engine._runtime.tokenizer_manager
        assert manager.tokenizer is not None
        bos = manager.tokenizer.bos_token_id
        assert bos is not None
        session = engine.open_session()
        assert say(engine, session, [bos, 5])["meta_info"]["prompt_tokens"] == 2
        assert say(engine, session, [bos, 5])["meta_info"]["prompt_tokens"] == 2 + 6 + 1


def test_limits_of_the_run() -> None:
    with without_tokenizer(max_sessions=2, max_session_tokens=12) as engine:
        assert engine.get_server_info()["sessions"] == {"open": 0, "tokens": 0}
        first = engine.open_session(10**6)
        assert engine.get_server_info()["sessions"] == {"open": 1, "tokens": 0}
        engine.open_session(session_id="second")
        with pytest.raises(RequestError, match="2 sessions are open") as refused:
            engine.open_session()
        assert refused.value.status_code == 503
        with pytest.raises(RequestError, match="holds 0 tokens of at most 12"):
            say(engine, first, [5] * 7)
        with pytest.raises(RequestError, match="is open"):
            engine.open_session(session_id="second")
