"""`Engine.why` on both topologies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.engines import simulated, without_tokenizer


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_the_engine_tells_a_life(topology: Any) -> None:
    with without_tokenizer(topology=topology) as engine:
        sampling = {"max_new_tokens": 4, "temperature": 0}
        engine.generate(input_ids=[5, 6, 7], sampling_params=sampling, rid="mine")
        other = engine.generate(input_ids=[8, 9], sampling_params=sampling)["meta_info"]["id"]
        (life,) = engine.why("mine")["requests"]
        assert [event["event"] for event in life["events"]] == [
            "arrived",
            "admitted",
            "prefill",
            "first_token",
            "ended",
        ]
        assert life["events"][-1]["outputs"] == 4
        (second,) = engine.why(other)["requests"]
        assert (second["id"], second["prompt_tokens"]) == (other, 2)
        nobody = engine.why("nobody")
        assert nobody["requests"] == []
        assert nobody["ring"]["last"] == life["events"][-1]["step"] + 4


def test_it_can_be_asked_after_the_replica_has_ended() -> None:
    from jackfield.hookspecs import WorkerResult

    with simulated() as engine:
        runtime: Any = engine._runtime
        engine.generate(input_ids=[5, 6], sampling_params={"max_new_tokens": 1}, rid="before")

        def broken(*_: Any) -> WorkerResult:
            raise RuntimeError("the device is gone")

        runtime.worker.launch = broken
        with pytest.raises(Exception, match="the device is gone"):
            engine.generate(input_ids=[5, 6], sampling_params={"max_new_tokens": 1}, rid="during")
        assert engine.why("before")["requests"][0]["state"] == "finished"
        assert engine.why("during")["requests"][0]["state"] == "running"
