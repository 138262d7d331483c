"""Tables, for people at a terminal and for programs behind a pipe."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from jackfield.entrypoints.cli import main
from jackfield.entrypoints.cli.output import as_written, print_table

ROWS = [("a [b]", "one\ntwo"), ("c:smile:", "x" * 200)]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_in_a_pipe_a_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "WORDS"), ROWS, title="Title")
    print_table(("NAME", "WORDS"), [])
    assert capsys.readouterr().out.split("\n") == [
        "Title",
        "NAME      WORDS",
        "a [b]     one two",
        "c:smile:  " + "x" * 200,
        "",
        "(none)",
        "",
        "",
    ]


def test_on_a_terminal_it_is_fitted_and_nothing_is_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("NAME", "WORDS"), ROWS, title="Title")
    print_table(("NAME", "WORDS"), [])
    shown = terminal.getvalue()
    assert max(len(line) for line in shown.splitlines()) < 100, "folded"
    assert shown.count("x") == 200
    assert "a [b]" in shown
    assert "c:smile:" in shown
    assert shown.rstrip().endswith("(none)")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        ("lru", '"lru"'),
        ([1, "ä"], '[1, "ä"]'),
        (Path("a"), '"a"'),
        (float("inf"), "Infinity"),
    ],
)
def test_a_value_is_shown_as_it_is_written(value: object, text: str) -> None:
    assert as_written(value) == text


@pytest.mark.model
def test_explain_shows_plugins_that_were_filled_in_by_name(
    embedded_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--worker", "simulated"]) == 0
    line, *plugins = [line for line in capsys.readouterr().out.splitlines() if line.startswith("routes ")]
    assert line.split()[1:5] == ["anthropic,", "ollama,", "playground", "auto:"]
    assert [plugin.split("  ")[-1].split()[0] for plugin in plugins] == ["auto:"] * 3, "nobody named them"
