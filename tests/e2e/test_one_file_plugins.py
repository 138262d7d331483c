"""A policy in one file, from the command line and in an engine of several processes: what a researcher does first."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield import Engine
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli import main

POLICY = """
import numpy as np
from pydantic import BaseModel, Field

from jackfield.hookspecs import SchedulePolicy, hookimpl

PLUGIN = {
    "kind": "schedule_policy",
    "name": "mine",
    "summary": "Fewest output tokens first",
    "contract": {"schedule_policy": "%s"},
    "options": "Options",
}


class Options(BaseModel):
    sign: int = Field(1, description="-1: most output tokens first.")


class Mine(SchedulePolicy):
    def __init__(self, options):
        self.options = options

    def order(self, waiting, view):
        return np.argsort(self.options.sign * waiting.max_new_tokens, kind="stable")


@hookimpl
def jackfield_schedule_policy(context):
    return Mine(context.options)
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    from jackfield.hookspecs.kinds import KINDS

    file = tmp_path / "my_policy.py"
    file.write_text(POLICY % KINDS["schedule_policy"].contract_version)
    return file


@pytest.mark.model
def test_one_line_runs_a_policy_of_ones_own(
    policy: Path, embedded_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(policy.parent)
    words = ["generate", "Hello", "--plugin", "./my_policy.py", "--schedule-policy", "mine", "--worker", "simulated"]
    assert main([*words, "--max-new-tokens", "4", "--option", "worker.simulated.script=Good day"]) == 0
    told = capsys.readouterr()
    assert told.out == "Good day\n"
    assert "schedule_policy=mine" in told.err


@pytest.mark.model
def test_it_decides_in_the_schedulers_own_process(policy: Path, embedded_model: Path) -> None:
    ends = []
    with Engine(
        plugin=[str(policy)],
        schedule_policy="mine",
        worker="simulated",
        topology="processes",
        max_running_requests=1,
        random_seed=1,
        options={"schedule_policy.mine": {"sign": -1}},
    ) as engine:
        # One behind the other, so that three wait when the first has run.
        prompts = ["Hello"] * 4
        lengths = [{"max_new_tokens": n, "ignore_eos": True} for n in (300, 10, 30, 20)]
        for part in engine.generate(prompts, lengths, stream=True):
            if part["meta_info"]["finish_reason"]:
                ends.append(part["index"])
    assert ends[0] == 0
    assert ends[1:] == [2, 3, 1]


def test_lists_and_explanations_show_it(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "list", "--plugin", str(policy)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if str(policy) in line]
    assert line.split()[:3] == ["schedule_policy", "mine", "ok"]
    assert main(["plugins", "show", "schedule_policy.mine", "--plugin", str(policy)]) == 0
    assert "most output tokens first" in capsys.readouterr().out
    words = ["explain", "--plugin", str(policy), "--schedule-policy", "mine", "--worker", "simulated"]
    assert main(words) == 0
    assert str(policy) in capsys.readouterr().out


def test_an_engine_refuses_a_file_of_which_it_uses_nothing(policy: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"argument plugin.*: the stack uses nothing of it; add --schedule-policy mine"
    ):
        Engine(plugin=policy, worker="simulated")
