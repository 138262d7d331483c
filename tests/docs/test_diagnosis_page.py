"""The commands of docs/diagnosis.md do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jackfield.entrypoints.cli import main
from jackfield.stack.lock import differences

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "diagnosis.md").read_text()
COMMANDS = re.findall(r"^    jackfield ((?:plugins|explain|lock) .*)$", PAGE, re.MULTILINE)


def test_every_command_of_the_page_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 9
    for command in COMMANDS:
        assert main([*command.split(), *([] if command.startswith("plugins") else ["--device", "cpu"])]) == 0, command
        captured = capsys.readouterr()
        assert "jackfield: " not in captured.err
        if command.endswith("--active --schedule-policy lpm"):
            active = {tuple(line.split()[:2]) for line in captured.out.splitlines() if line.split()[3:4] == ["yes"]}
            assert ("schedule_policy", "lpm") in active
            assert ("schedule_policy", "fcfs") not in active


def test_the_refusal_of_the_page_has_the_words_of_a_real_one() -> None:
    lines = [line[6:] for line in PAGE.splitlines() if line.startswith("      - ")]
    plugin = {"kind": "schedule_policy", "name": "lpm", "instance": "lpm", "distribution": "d", "version": "1"}
    core = {"version": "1", "content": "c"}
    base = {"core": core, "contracts": {}, "resolution": {}, "stack_hash": "a"}
    was = base | {"plugin": [plugin | {"content": "7a0be451605b"}]}
    now = base | {"plugin": [plugin | {"content": "3c9fa1d80b77", "options": {"max_queue": 64}}]}
    assert ["- " + text for text in differences(was, now)] == lines
