"""The one-file plugins of the documentation run as they are told."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.cli import main
from jackfield.stack.discovery.catalogue import Status
from jackfield.stack.discovery.scan import discover
from tests.conformance.checks import failing

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIMULATED = ["--worker", "simulated"]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(page: str, file: str) -> list[list[str]]:
    """The page's command lines that name the file."""
    lines = re.findall(r"^    (?:\.venv/bin/)?jackfield (.*)$", (DOCS / page).read_text(), flags=re.MULTILINE)
    return [line.replace('"', "").split() for line in lines if file in line]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.model
def test_the_pages_example(folder: Path, embedded_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, engine, tests = blocks("one-file-plugins.md")
    (folder / "my_policy.py").write_text(policy)
    generate, explain, serve, show, conformance, doctor, lock = commands("one-file-plugins.md", "my_policy.py")
    assert conformance[:2] == ["conformance", "schedule_policy.mine"]
    assert main([*generate, *SIMULATED, "--max-new-tokens", "2"]) == 0
    assert "schedule_policy=mine" in capsys.readouterr().err
    assert main(explain) == 0
    assert "long_answer=64" in capsys.readouterr().out
    assert main(serve) == 0
    assert "--schedule-policy.mine.long-answer LONG_ANSWER" in capsys.readouterr().out
    assert main(show) == 0
    assert "Above this many output tokens" in capsys.readouterr().out
    assert main(doctor) == 0
    assert "sound" in capsys.readouterr().out
    assert main(lock) == 0
    assert "mine" in [plugin["name"] for plugin in tomllib.loads(capsys.readouterr().out)["plugin"]]
    space: dict[str, Any] = {"__file__": str(folder / "test_my_policy.py"), "__name__": "test_my_policy"}
    exec(compile(tests, "test_my_policy.py", "exec"), space)
    assert failing(space["TestMine"], ["test_loads", "test_long_answers_go_last"]) == {}
    exec(compile(engine, "one-file-plugins.md", "exec"), {})
    assert capsys.readouterr().out == f"{engine.rpartition('# ')[2].strip()}\n"


@pytest.mark.model
def test_the_tutorials_example(folder: Path, embedded_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (policy,) = [block for block in blocks("tutorial.md") if block.startswith("# shortest.py")]
    (folder / "shortest.py").write_text(policy)
    (row,) = discover([], files=[folder / "shortest.py"])
    assert (row.status, row.name) == (Status.OK, "shortest")
    _, simulated = commands("tutorial.md", "shortest.py")
    assert main([*simulated, "--max-new-tokens", "2"]) == 0
    assert "schedule_policy=shortest" in capsys.readouterr().err


def test_the_stack_files_page_is_a_stack_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of its examples is read, and a named one is resolved."""
    examples = re.findall(
        r"^```toml\n(.*?)^```", (DOCS / "reference" / "stack-file.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    one, several = (example.replace('model_path = "./my-model"', 'worker = "simulated"') for example in examples)
    (folder / "one.toml").write_text(one)
    (folder / "several.toml").write_text(several)
    for stack in ("one.toml", "several.toml", "several.toml#fair", "several.toml#watched"):
        extra = ["--worker", "torch"] if stack == "one.toml" else []
        assert main(["plugins", "list", "--active", "--stack", stack, *extra]) == 0, capsys.readouterr().err
        shown = capsys.readouterr().out
        if stack.endswith("#watched"):
            assert "yes (as steps, lives)" in shown
