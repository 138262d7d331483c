"""What is left of an engine after an error in one of its parts, and after Ctrl-C: one clear end, or none at all."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from jackfield.entrypoints import inline
from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.hookspecs import StepOutcome
from jackfield.managers.errors import RequestError
from jackfield.stack.errors import PluginStop
from tests.e2e.engines import assert_alive, without_tokenizer

PARAMS = {"max_new_tokens": 6, "ignore_eos": True}


def broken(engine: Any, part: str, method: str, *, at: int = 3) -> None:
    """Let the method raise at its call number `at`, and work at every other."""
    owner = getattr(engine._runtime, part)
    whole, calls = getattr(owner, method), iter(range(1, 10**6))

    def breaks(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == at:
            raise ZeroDivisionError("the plugin's own words")
        return whole(*args, **kwargs)

    setattr(owner, method, breaks)


@pytest.mark.parametrize(("part", "method"), [("worker", "launch"), ("worker", "sample"), ("detokenizer", "step")])
def test_a_replica_that_failed_once_never_answers_again(part: str, method: str) -> None:
    """Half a step was done: whatever came after it could be wrong without anybody noticing."""
    with without_tokenizer(max_total_tokens=256) as engine:
        broken(engine, part, method)
        stream = engine.generate(input_ids=[9, 9], sampling_params=PARAMS, stream=True)
        with pytest.raises((ZeroDivisionError, PluginStop), match="the plugin's own words"):
            engine.generate(input_ids=[[3, 4], [5, 6]], sampling_params=PARAMS)
        with pytest.raises(RequestError, match="stopped") as ended:
            list(stream)
        assert ended.value.status_code == 500
        for call in (lambda: engine.generate(input_ids=[3]), engine.flush_cache):
            with pytest.raises(ReplicaFailed, match="the plugin's own words"):
                call()
        info = engine.get_server_info()
        assert "the plugin's own words" in info["failure"]
        if part == "worker":
            ((key, account),) = info["faults"].items()
            assert key == "worker.simulated"
            assert (account["by_scope"], account["last"]) == (
                {"stop": 1},
                "ZeroDivisionError: the plugin's own words",
            )
        assert not engine._runtime.tokenizer_manager.rid_to_state


def test_those_who_wait_in_other_threads_hear_of_the_failure() -> None:
    heard: list[BaseException] = []
    with without_tokenizer(max_total_tokens=256) as engine:
        broken(engine, "worker", "sample")

        def ask() -> None:
            try:
                engine.generate(input_ids=[3, 4, 5], sampling_params=PARAMS)
            except (RequestError, ReplicaFailed, PluginStop) as error:
                heard.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(heard) == 4


@pytest.mark.parametrize("answer", [StepOutcome.RAN, StepOutcome.IDLE])
def test_an_event_loop_that_does_nothing_is_an_error_and_no_hang(
    answer: StepOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inline, "STALL_SECONDS", 0.0)
    with without_tokenizer(max_total_tokens=256) as engine:
        monkeypatch.setattr(engine._runtime.loop, "step", lambda: answer)
        with pytest.raises(inline.RuntimeStalled, match="1 requests are open"):
            engine.generate(input_ids=[3])


@pytest.mark.parametrize("where", ["launch", "sample"])
def test_ctrl_c_in_the_middle_of_a_step_costs_its_requests_and_nothing_else(where: str) -> None:
    with without_tokenizer(max_total_tokens=256) as engine:
        worker = engine._runtime.worker
        whole, calls = getattr(worker, where), iter(range(1, 10**6))

        def interrupted(*args: Any) -> Any:
            if next(calls) == 3:
                signal.raise_signal(signal.SIGINT)
            return whole(*args)

        setattr(worker, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.generate(input_ids=[[3, 4], [5, 6]], sampling_params=PARAMS)
        assert_alive(engine)
