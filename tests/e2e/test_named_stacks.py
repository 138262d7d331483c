"""A run from one of several stacks in a file: the same plugin twice, each use with its own options and its own state."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jackfield import Engine
from jackfield.hookspecs.kinds import KINDS

PLUGINS = """
from pathlib import Path

from pydantic import BaseModel

from jackfield.hookspecs import Gate, GateAnswer, MetricsSink, hookimpl

PLUGINS = @ROWS@


class Options(BaseModel):
    log: Path
    mark: str = "-"


class Noter:
    def __init__(self, context):
        self.options = context.options
        self.count = 0

    def note(self):
        self.count += 1
        self.options.log.write_text(f"{self.options.mark * self.count}")


class Watcher(Noter):
    @hookimpl
    def jackfield_requests_finished(self, requests):
        for _ in requests:
            self.note()


class Door(Noter, Gate):
    def enter(self, request):
        self.note()
        return GateAnswer.OPEN

    def poll(self):
        return []

    def cancel(self, uid):
        pass


class Sink(Noter, MetricsSink):
    def declare(self, metrics):
        self.note()

    def record(self, samples):
        pass

    def close(self):
        pass


@hookimpl
def jackfield_observer(context):
    return Watcher(context)


@hookimpl
def jackfield_gate(context):
    return Door(context)


@hookimpl
def jackfield_metrics_sink(context):
    return Sink(context)
"""

STACKS = """
plugin = "noter.py"
topology = "inline"
skip_tokenizer_init = true

[stack]
worker = "simulated"

[stacks.pairs.stack]
observer = [
  { plugin = "noter", as = "one", options = { log = "o1", mark = "a" } },
  { plugin = "noter", as = "two", options = { log = "o2", mark = "b" } },
]
gate = [
  { plugin = "noter", as = "one", options = { log = "g1", mark = "c" } },
  { plugin = "noter", as = "two", options = { log = "g2", mark = "d" } },
]
metrics = [
  { plugin = "noter", as = "one", options = { log = "m1", mark = "e" } },
  { plugin = "noter", as = "two", options = { log = "m2" } },
]

[stacks.pairs.options."metrics.two"]
mark = "f"
"""


@pytest.mark.goal_row(3, 5, 28)
def test_one_plugin_twice_in_three_kinds_and_paths_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stacks"
    folder.mkdir()
    rows = [
        {
            "kind": kind,
            "name": "noter",
            "summary": "Writes what it is told",
            "contract": {kind: KINDS[kind].contract_version},
            "options": "Options",
        }
        for kind in ("observer", "gate", "metrics")
    ]
    (folder / "noter.py").write_text(PLUGINS.replace("@ROWS@", repr(rows)))
    (folder / "stacks.toml").write_text(STACKS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with Engine(stack="../stacks/stacks.toml#pairs", plugin_faults="raise") as engine:
        for _ in range(2):
            engine.generate(input_ids=[1, 2, 3], sampling_params={"max_new_tokens": 2})
    found = {file.name: file.read_text() for file in folder.iterdir() if file.suffix == ""}
    assert found == {"o1": "aa", "o2": "bb", "g1": "cc", "g2": "dd", "m1": "e", "m2": "f"}
    assert os.listdir(elsewhere) == []
