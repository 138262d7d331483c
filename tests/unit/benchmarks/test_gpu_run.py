"""`benchmarks/gpu/run.py` as its sections' parent: what happens to one process costs no other's answers, and is told."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmarks.gpu.plan import Plan, Section


@pytest.fixture(scope="module")
def run() -> ModuleType:
    before = list(sys.path)
    module = importlib.import_module("benchmarks.gpu.run")
    sys.path[:] = before  # it makes itself a path, as nothing is installed where it is used
    return module


def plan(*titles: str, together: bool = False) -> Plan:
    sections = tuple(Section(title=title, section="limits", seconds=30, together=together) for title in titles)
    return Plan(sections=sections, absent={})


def test_a_stray_line_costs_no_row(run: ModuleType) -> None:
    """A compiler may write to the same file; the last row may be cut off."""
    row = {"title": "a", "seconds": 1}
    text = (
        f'ninja: no work to do\n{json.dumps(row)}\n[1, 2]\n{{"no": "title"}}\n{json.dumps(row)}\n{{"title": "a", "sec'
    )
    assert list(run.told(text)) == [row, row]


def test_a_process_that_cannot_be_run_leaves_the_others_theirs(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document on disk is whole after each, in the order of the plan, also where processes run side by side."""
    out = tmp_path / "results.json"
    seen = list[list[str]]()

    def started(self: Any, group: Sequence[Section], _: Any) -> list[dict[str, Any]]:
        seen.append([section["title"] for section in json.loads(out.read_text())["sections"]])
        if group[0].title == "b":
            raise OSError("no memory for it")
        return [{"title": group[0].title, "outcome": "done", "rows": []}]

    monkeypatch.setattr(run.Run, "_started", started)
    three = plan("a", "b", "c")
    beside = plan("d", "e", together=True)
    both = Plan(sections=beside.sections + three.sections, absent={})
    one = run.Run("cpu", both, tiny=False, seconds=100, out=out)
    one.all(both.sections)
    found = json.loads(out.read_text())
    assert [section["title"] for section in found["sections"]] == ["d", "e", "a", "b", "c"]
    assert found["problems"] == ["b: its process could not be run: OSError: no memory for it: it said nothing"]
    assert found["seconds"] >= 0
    assert [len(titles) for titles in seen[-3:]] == [2, 3, 4], "written anew after each"
    assert list(tmp_path.iterdir()) == [out]


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: ModuleType, text: str) -> None:
    """In the place of Python."""
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    monkeypatch.setattr(run.sys, "executable", str(file))


def test_a_process_that_dies_at_once_is_a_problem(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with code 1 like one in which a check failed, and has told nothing: a package is missing, say."""
    program(tmp_path, monkeypatch, run, "echo 'ModuleNotFoundError: No module named pluggy' >&2; exit 1")
    one = run.Run("cpu", plan("a"), tiny=True, seconds=100, out=None)
    one.all(plan("a").sections)
    assert one.document["problems"] == ["a: its process ended with code 1: ModuleNotFoundError: No module named pluggy"]


def test_what_a_process_has_started_ends_with_it(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that goes on would be measured beside the next section."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    program(tmp_path, monkeypatch, run, f"exec 3>'{pipe}'\nsleep 1000 &\nexit 0")
    one = run.Run("cpu", plan("a"), tiny=True, seconds=100, out=None)
    one.all(plan("a").sections)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "ends when nobody holds the pipe any more"
    os.close(reader)


def test_a_folder_for_the_document_is_made_and_a_title_that_none_has_is_told(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.Run, "_started", lambda self, group, more: [])
    assert run.main(["--tiny", "--only", "limits", "--out", str(tmp_path / "new" / "results.json")]) == 0
    assert json.loads((tmp_path / "new" / "results.json").read_text())["sections"] == []
    assert run.main(["--tiny", "--only", "limit of nothing"]) == 2
    assert "no section's title holds 'limit of nothing':\n" in capsys.readouterr().err
