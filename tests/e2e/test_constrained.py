"""Constrained output through whole engines: what clients get, that neighbours are what they are alone, what a sick backend costs,
and that its compiler's process goes with the engine."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from jackfield.managers.grammar.words import GRAMMAR_FAILED, TOO_MUCH_MEMORY, too_slow
from tests.e2e.engines import assert_alive, simulated

SICK = Path(__file__).parents[1] / "unit" / "grammar" / "sick_grammar.py"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["größer", '"', "\\", "日本"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def asking(**given: Any) -> dict[str, Any]:
    return {"max_new_tokens": 400, **given}


def keeps_to_the_schema(text: str) -> bool:
    value = json.loads(text)
    return (
        list(value) == ["name", "age", "tags"]
        and isinstance(value["name"], str)
        and len(value["name"]) <= 12
        and type(value["age"]) is int
        and 0 <= value["age"] <= 150
        and len(value["tags"]) <= 2
        and set(value["tags"]) <= {"größer", '"', "\\", "日本"}
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = simulated(event_loop="overlap", max_running_requests=8)
    yield made
    made.shutdown()


def test_answers_keep_to_a_schema_whatever_the_draw(engine: Engine) -> None:
    answers = engine.generate([f"p{i}" for i in range(4)], sampling_params=asking(json_schema=SCHEMA, n=2))
    assert len(answers) == 8
    for answer in answers:
        assert answer["meta_info"]["finish_reason"]["type"] == "stop", answer["text"]
        assert keeps_to_the_schema(answer["text"]), answer["text"]
    assert_alive(engine)


def test_a_stream_is_the_same_answer(engine: Engine) -> None:
    params = asking(json_schema=json.dumps(SCHEMA), seed=7)
    whole = engine.generate("x", sampling_params=params)
    last = list(engine.generate("x", sampling_params=params, stream=True))[-1]
    assert last["text"] == whole["text"]
    assert keeps_to_the_schema(whole["text"])


def test_free_neighbours_are_what_they_are_alone(engine: Engine) -> None:
    free = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}
    alone = engine.generate("a neighbour", sampling_params=free)["output_ids"]
    answers = engine.generate(
        ["a neighbour", "x", "y", "a neighbour"],
        sampling_params=[free, asking(regex="[0-9]{20}"), asking(regex="(no|yes)"), free],
    )
    assert answers[0]["output_ids"] == answers[3]["output_ids"] == alone
    assert re.fullmatch("[0-9]{20}", answers[1]["text"])
    assert answers[2]["text"] in ("no", "yes")


def test_a_session_goes_on_under_another_grammar(engine: Engine) -> None:
    session = engine.open_session()
    for turn, pattern in enumerate(("(yes|no)", "[0-9]{4}")):
        answer = engine.generate(f"turn {turn}", sampling_params=asking(regex=pattern), session_params={"id": session})
        assert re.fullmatch(pattern, answer["text"])
    engine.close_session(session)


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ({"json_schema": {"uniqueItems": True}}, "json_schema", "uniqueItems"),
        ({"regex": "((("}, "regex", "not closed"),
        ({"regex": "a", "json_schema": {}}, "regex", "both"),
        ({"json_schema": '{"type": '}, "json_schema", "not valid JSON"),
    ],
)
def test_b68_a_refusal_names_the_field_and_the_place(engine: Engine, given: Any, param: str, words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)) as caught:
        engine.generate("x", sampling_params=given)
    assert (caught.value.param, caught.value.status_code) == (param, 400)
    assert_alive(engine)


def test_without_a_backend_there_is_no_process_and_a_clear_word() -> None:
    with simulated(grammar_backend="none") as engine:
        with pytest.raises(RequestError, match="--grammar-backend"):
            engine.generate("x", sampling_params={"regex": "a"})
        assert_alive(engine)


def test_a_real_model_under_masks(tmp_path: Path) -> None:
    """The likeliest allowed token is drawn, log-probabilities are those of the free choice, and the neighbour of the same prompt
    answers as it does alone."""
    with Engine(topology="inline", event_loop="overlap", max_total_tokens=2048, dtype="float32") as engine:
        free = {"max_new_tokens": 8, "temperature": 0}
        prompt = "The capital of France is"
        (alone,) = engine.generate([prompt], sampling_params=free, return_logprob=True, top_logprobs_num=1)
        answers = engine.generate(
            [prompt] * 3,
            sampling_params=[free, {**free, "regex": " (Rome|Berlin)"}, {**free, "regex": "[0-9]{3}"}],
            return_logprob=True,
            top_logprobs_num=1,
        )
        assert answers[0]["output_ids"] == alone["output_ids"]
        assert answers[1]["text"] in (" Rome", " Berlin")
        assert re.fullmatch("[0-9]{3}", answers[2]["text"])
        tops = [answer["meta_info"]["output_top_logprobs"][0][0] for answer in (alone, *answers)]
        assert {top[1] for top in tops} == {alone["output_ids"][0]}
        assert all(abs(top[0] - tops[0][0]) < 1e-3 for top in tops)
        chosen = answers[2]["meta_info"]["output_token_logprobs"][0]
        assert chosen[0] < tops[2][0]
        assert_alive(engine)


def test_b71_a_sick_backend_costs_those_who_ask_for_what_it_cannot() -> None:
    limits = {"grammar_compile_timeout": 0.4, "grammar_compile_memory": 64 << 20, "grammar_cache_bytes": 0}
    with simulated(plugin=[str(SICK)], grammar_backend="sick", **limits) as engine:
        for pattern, status, words in (
            ("hang", 400, too_slow(0.4)),
            ("memory:1000000000", 400, TOO_MUCH_MEMORY),
            ("raise", 500, GRAMMAR_FAILED),
            ("killed", 500, GRAMMAR_FAILED),
            ("refuse", 400, "uniqueItems"),
        ):
            with pytest.raises(RequestError, match=re.escape(words)) as caught:
                engine.generate("x", sampling_params={"regex": pattern})
            assert caught.value.status_code == status
            answers = engine.generate(["x", "y"], sampling_params=[{"regex": "ab"}, {"max_new_tokens": 3}])
            assert answers[0]["text"] == "ab"
        faults = engine.get_server_info()["faults"]["grammar.sick"]
        assert faults["count"] == 2
        assert_alive(engine)


def test_b71_in_processes_the_compiler_comes_back_after_a_kill_and_goes_with_the_engine() -> None:
    with simulated(topology="processes") as engine:
        for _ in range(2):
            assert re.fullmatch("a[0-9]b", engine.generate("x", sampling_params={"regex": "a[0-9]b"})["text"])
            (pid,) = compilers_of(engine)
            os.kill(pid, signal.SIGKILL)
            answer = engine.generate("x", sampling_params=asking(json_schema={"enum": [f"v{pid}"]}))
            assert json.loads(answer["text"]) == f"v{pid}"
        (pid,) = compilers_of(engine)
        assert_alive(engine)
    assert not Path(f"/proc/{pid}").exists()


def compilers_of(engine: Engine) -> list[int]:
    """Children of the scheduler's process that compile."""
    pids = {row["role"]: row["pid"] for row in engine.get_server_info()["processes"]}
    threads = Path(f"/proc/{pids['scheduler']}/task").iterdir()
    found = []
    for child in [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]:
        command = Path(f"/proc/{child}/cmdline").read_text()
        if "jackfield.managers.grammar.child" in command:
            found.append(child)
    return found
