"""Engines under `--event-loop overlap`: the worker's thread, answers, a flush right after one, failures, the end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.managers.errors import RequestError
from jackfield.managers.scheduler.threaded_worker import ThreadedWorker
from jackfield.stack.errors import PluginStop
from tests.e2e.engines import assert_alive, tiny, without_tokenizer

GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
PROMPTS = [[3 + (7 * i * j) % 120 for i in range(n)] for j, n in enumerate([1, 5, 16, 41, 90], 1)]


def worker_threads() -> int:
    return sum(thread.name == "jackfield-worker" for thread in threading.enumerate())


def overlapping(model: Path, **args: Any) -> Any:
    return tiny(model, event_loop="overlap", **args)


def test_the_torch_worker_runs_on_a_thread_that_ends_with_the_engine(tiny_model: Path) -> None:
    before = worker_threads()
    with tiny(tiny_model) as engine:
        assert worker_threads() == before
        assert engine.get_server_info()["stack"]["worker_thread"] is False
        expected = [answer["output_ids"] for answer in engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)]
    with overlapping(tiny_model) as engine:
        assert worker_threads() == before + 1
        assert engine.get_server_info()["stack"]["worker_thread"] is True
        answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY)
        assert [answer["output_ids"] for answer in answers] == expected
        assert_alive(engine)
    assert worker_threads() == before


def test_drawn_tokens_are_those_of_the_normal_loop(tiny_model: Path) -> None:
    drawn = {"temperature": 0.9, "top_p": 0.9, "max_new_tokens": 24, "seed": 5}
    answers = []
    for loop in ("normal", "overlap"):
        with tiny(tiny_model, event_loop=loop, page_size=4) as engine:
            found = engine.generate(input_ids=PROMPTS, sampling_params=drawn)
            answers.append([(answer["output_ids"], answer["meta_info"]["finish_reason"]) for answer in found])
            assert_alive(engine)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_a_flush_right_after_an_answer_that_ended_by_a_token(tiny_model: Path, topology: str) -> None:
    """The surplus step is in flight then, and nobody has to know."""
    with overlapping(tiny_model, topology=topology) as engine:
        whole = engine.generate(input_ids=PROMPTS[2], sampling_params=GREEDY)["output_ids"]
        engine.flush_cache()
        stop = {**GREEDY, "stop_token_ids": [whole[4]]}
        for _ in range(5):
            answer = engine.generate(input_ids=PROMPTS[2], sampling_params=stop)
            assert answer["output_ids"] == whole[: whole.index(whole[4]) + 1]
            assert answer["meta_info"]["cached_tokens"] == 0
            engine.flush_cache()
        assert_alive(engine)


def test_the_simulated_worker_needs_no_thread() -> None:
    before = worker_threads()
    with without_tokenizer(event_loop="overlap", max_total_tokens=256) as engine:
        assert worker_threads() == before
        engine.generate(input_ids=[[3, 4], [5, 6]], sampling_params=GREEDY)
        assert_alive(engine)


@pytest.mark.parametrize("method", ["launch", "sample"])
def test_a_failure_on_the_workers_thread_ends_the_replica_and_no_thread_stays(tiny_model: Path, method: str) -> None:
    before = worker_threads()
    with overlapping(tiny_model) as engine:
        worker = engine._runtime.worker
        assert isinstance(worker, ThreadedWorker)
        inner, calls = worker._worker, iter(range(1, 10**6))
        whole = getattr(inner, method)

        def breaks(*args: Any) -> Any:
            if next(calls) == 3:
                raise ZeroDivisionError("the plugin's own words")
            return whole(*args)

        setattr(inner, method, breaks)
        stream = engine.generate(input_ids=[9, 9], sampling_params=GREEDY, stream=True)
        with pytest.raises((ZeroDivisionError, PluginStop), match="the plugin's own words"):
            engine.generate(input_ids=[[3, 4], [5, 6]], sampling_params=GREEDY)
        with pytest.raises(RequestError, match="stopped"):
            list(stream)
        with pytest.raises(ReplicaFailed, match="the plugin's own words"):
            engine.generate(input_ids=[3])
        ((key, account),) = engine.get_server_info()["faults"].items()
        assert (key, account["by_scope"]) == ("worker.torch", {"stop": 1})
    assert worker_threads() == before


def test_an_engine_that_is_closed_in_the_middle_leaves_no_thread(tiny_model: Path) -> None:
    before = worker_threads()
    with overlapping(tiny_model) as engine:
        streams = [engine.generate(input_ids=prompt, sampling_params=GREEDY, stream=True) for prompt in PROMPTS]
        for stream in streams:
            next(stream)
        assert engine._runtime.scheduler.state().running
    assert worker_threads() == before


def test_processes_answer_under_it(tiny_model: Path) -> None:
    with overlapping(tiny_model, topology="processes") as engine, tiny(tiny_model) as other:
        answers = [each.generate(input_ids=PROMPTS, sampling_params=GREEDY) for each in (engine, other)]
        assert [answer["output_ids"] for answer in answers[0]] == [answer["output_ids"] for answer in answers[1]]
        assert_alive(engine)
