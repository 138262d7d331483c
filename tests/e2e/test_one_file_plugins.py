"""A policy in one file, from the command line and in an engine of several processes: what a researcher does first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jackfield import Engine
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli import main
from jackfield.hookspecs.kinds import KINDS
from tests.e2e.engines import simulated, tiny
from tests.e2e.replicas import pids

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


def test_it_is_loaded_in_the_schedulers_own_process(policy: Path, tiny_model: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with policy.open("a") as file:
        file.write(f"import os, pathlib\nprocess = pathlib.Path({str(note)!r})\nprocess.write_text(str(os.getpid()))\n")
    options = {"schedule_policy.mine": {"sign": -1}}
    with tiny(
        tiny_model,
        plugin=[str(policy)],
        schedule_policy="mine",
        worker="simulated",
        topology="processes",
        options=options,
    ) as engine:
        answer = engine.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 3, "ignore_eos": True})
        assert len(answer["output_ids"]) == 3
        assert int(note.read_text()) == pids(engine)["scheduler"] != os.getpid()


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


def test_an_edited_file_is_swapped_in_while_the_replica_runs(policy: Path) -> None:
    with simulated(skip_tokenizer_init=True, plugin=[policy], schedule_policy="mine", max_running_requests=1) as engine:

        def ends() -> list[int]:
            lengths = [{"max_new_tokens": n, "ignore_eos": True} for n in (300, 10, 30, 20)]
            parts = engine.generate(input_ids=[[5, 6, 7]] * 4, sampling_params=lengths, stream=True)
            return [part["index"] for part in parts if part["meta_info"]["finish_reason"]]

        before = engine.get_server_info()["stack"]["hash"]
        assert ends() == [1, 3, 2, 0]
        policy.write_text(policy.read_text().replace("self.options.sign *", "-self.options.sign *"))
        engine.swap_schedule_policy("mine")
        stack = engine.get_server_info()["stack"]
        assert (stack["hash"] != before, stack["epoch"]) == (True, 1)
        assert ends() == [0, 2, 3, 1]
        policy.write_text("def f(:\n")
        with pytest.raises(ConfigurationError, match=r"my_policy\.py: it is not valid Python: line 1"):
            engine.swap_schedule_policy("mine")
        assert ends() == [0, 2, 3, 1]
        assert engine.swap_schedule_policy("fcfs")["changed"], (
            "a broken file keeps nobody from a policy that is not in it"
        )


ATTENTION = """
{source}

from jackfield.hookspecs import Problem, hookimpl

PLUGIN = {{
    "kind": "attention",
    "name": "columns",
    "summary": "Keys as columns inside a page",
    "contract": {{"attention": "{version}"}},
    "devices": ["cpu"],
    "dtypes": ["float32"],
    "layouts": ["columns/kt-paged"],
    "probe": "check",
}}
LAYOUTS = [
    {{
        "name": "columns/kt-paged",
        "tensors": [
            {{"role": "k", "shape": ["kv_heads", "head", "page"]}},
            {{"role": "v", "shape": ["kv_heads", "page", "v_head"]}},
        ],
    }}
]


def check(need, device):
    return [Problem(text="pages of seven")] if need.page_size == 7 else []


@hookimpl
def jackfield_attention_backend(context):
    return ColumnarAttention(context)
"""

MODEL = """
from jackfield.hookspecs import ModelEntry, hookimpl
from jackfield_models_llama.model import Llama
from jackfield_models_llama.shape import describe

PLUGIN = {{
    "kind": "model",
    "name": "mine",
    "summary": "A Llama of one's own",
    "contract": {{"model": "{version}"}},
    "architectures": ["LlamaForCausalLM"],
}}


class Mine(Llama):
    pass


@hookimpl
def jackfield_models():
    return {{"LlamaForCausalLM": ModelEntry(shape=":describe", model=":Mine")}}
"""


def test_kinds_that_compute_may_be_files_too(tmp_path: Path, tiny_model: Path) -> None:
    """The attention backend of a stranger's package and a model, as one file each, with a KV layout of the file's own."""
    columnar = Path(__file__).parents[1] / "third_party/columnar-attention/src/columnar_attention/backend.py"
    attention, model = tmp_path / "attention.py", tmp_path / "model.py"
    attention.write_text(ATTENTION.format(source=columnar.read_text(), version=KINDS["attention"].contract_version))
    model.write_text(MODEL.format(version=KINDS["model"].contract_version))
    chosen = {"plugin": [attention, model], "attention_backend": "columns", "model_impl": "mine"}
    answers = []
    for own in ({}, chosen):
        with tiny(tiny_model, page_size=4, **own) as engine:
            given = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}
            answers.append(engine.generate(input_ids=list(range(3, 20)), sampling_params=given)["output_ids"])
            stack = {p["kind"]: p for p in engine.get_server_info()["stack"]["plugins"]}
    assert answers[0] == answers[1]
    assert (stack["attention"]["path"], stack["model"]["path"]) == (str(attention), str(model))
    with pytest.raises(ConfigurationError, match="pages of seven"):
        tiny(tiny_model, page_size=7, max_total_tokens=700, **chosen)
