"""The page on parsers: its file conforms, its test class too, and it is chosen as told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.cli import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "write-a-parser.md").read_text()
FILES = dict(re.findall(r"^`([\w/.-]+)`\n\n```\w+\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
COMMANDS = [line.split() for line in re.findall(r"^    jackfield (.*)$", PAGE, flags=re.MULTILINE)]


@pytest.mark.goal_row(35)
def test_the_page_s_parser_conforms_and_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__file__": str(tmp_path / "test_answer_parser.py"), "__name__": "test_answer_parser"}
    exec(compile(FILES["test_answer_parser.py"], "test_answer_parser.py", "exec"), space)
    suite = space["TestAnswer"]()
    for check in ("pieces_do_not_depend_on_how_the_text_is_cut", "every_piece_says_something", "streams_are_apart"):
        getattr(suite, f"test_{check}")(suite.make())
    conformance, explain = COMMANDS
    assert main(conformance) == 0, capsys.readouterr().out
    assert main(explain) == 0
    assert "named by --reasoning-parser" in capsys.readouterr().out
