"""The page on attention backends: its files conform, and the first serves as told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.cli import main
from jackfield.testing.conformance import AttentionConformance
from tests.conformance.checks import failing

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "write-an-attention-backend.md").read_text()
FILES = dict(re.findall(r"^`([\w/.-]+)`\n\n```\w+\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
UNNAMED = re.sub(r"^`[\w/.-]+`\n\n```\w+\n.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```python\n(.*?)^```", UNNAMED, flags=re.MULTILINE | re.DOTALL)
LINES = re.findall(r"^    jackfield (.*)$", PAGE, flags=re.MULTILINE)
COMMANDS = [line.replace('"The capital of France is"', "Hello").split() for line in LINES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.goal_row(35)
def test_the_backend_conforms(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conformance, _ = [words for words in COMMANDS if words[0] == "conformance"]
    assert main(conformance) == 0, capsys.readouterr().out
    assert "attention.rowwise conforms" in capsys.readouterr().out


def test_its_own_test_file_and_the_single_case(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__file__": str(folder / "test_rowwise.py"), "__name__": "test_rowwise"}
    exec(compile(FILES["test_rowwise.py"], "test_rowwise.py", "exec"), space)
    assert failing(space["TestRowwise"], ["test_loads", "test_a_batch_of_my_own"]) == {}
    single, _ = BLOCKS
    exec(compile(single, "write-an-attention-backend.md", "exec"), {})
    assert capsys.readouterr().out == "equal to the reference\n"


def test_the_file_of_recorded_steps_has_what_it_claims(folder: Path) -> None:
    _, (_, name, _, file) = [words for words in COMMANDS if words[0] == "conformance"]
    kind, plugin = name.split(".")
    assert kind == AttentionConformance.kind

    class TestRecorded(AttentionConformance):
        pass

    TestRecorded.plugin, TestRecorded.file = plugin, folder / file
    assert set(TestRecorded.manifest().features) == {"graph", "tree_mask", "kv:fp8_e4m3"}
    checks = "loads", "graph", "graphs_side_by_side", "tree_mask", "kv_dtype", "kv_dtype_writes", "plan_does_not_wait"
    assert failing(TestRecorded, [f"test_{check}" for check in checks]) == {}


@pytest.mark.model
def test_it_serves(folder: Path, embedded_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    explain, _, serve, doctor = [words for words in COMMANDS if words[0] != "conformance"]
    assert main(explain) == 0
    assert "rowwise" in capsys.readouterr().out
    assert main([*serve, "--help"]) == 0
    assert main(doctor) == 0
    capsys.readouterr()
    _, engine = BLOCKS
    (told,) = re.findall(r"^```text\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    exec(compile(engine, "write-an-attention-backend.md", "exec"), {})
    assert capsys.readouterr().out == told
