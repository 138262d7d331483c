"""`Engine.why` on both topologies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.cli import main
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


@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_lives_that_were_recorded(topology: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"observer.jsonl": {"directory": str(tmp_path)}}
    with without_tokenizer(topology=topology, observer=["jsonl"], options=options) as engine:
        engine.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 4, "ignore_eos": True}, rid="mine")
        (life,) = engine.why("mine")["requests"]
    assert main(["why", "mine", "--record", str(tmp_path / "lives.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == [life]
    decided = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [row["decodes"] for row in decided if row["event"] == "decided"] == [0, 1, 1, 1]


def test_choices_of_one_prompt_are_found_by_either_id() -> None:
    with without_tokenizer() as engine:
        engine.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 2, "n": 2}, rid="both")
        assert [life["id"] for life in engine.why("both")["requests"]] == ["both-0", "both-1"]
        assert [life["id"] for life in engine.why("both-1")["requests"]] == ["both-1"]


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
