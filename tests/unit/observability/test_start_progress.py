"""Progress of a start: bars for a terminal, lines in the log otherwise."""

from __future__ import annotations

import io
import logging
import sys
import threading

import pytest

from jackfield.entrypoints.progress import StartProgress


def feed(progress: StartProgress) -> None:
    for done in range(4):
        progress("loading weights", done, 3)
    progress("warming up", 0, 1)
    progress("warming up", 1, 1)


def test_one_line_a_part_where_nobody_watches(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="jackfield")
    with StartProgress() as progress:
        feed(progress)
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("loading weights: 3 of 3 in ")
    assert second.startswith("warming up: 1 of 1 in ")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("calm", [False, True])
def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch, calm: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with StartProgress(calm=calm) as progress:
        feed(progress)
        drawing = [thread for thread in threading.enumerate() if type(thread).__name__ == "_RefreshThread"]
        assert bool(drawing) is not calm
    shown = terminal.getvalue()
    assert "loading weights" in shown
    assert "3/3" in shown
    assert "warming up" in shown


def test_a_start_that_breaks_leaves_the_terminal_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    def start() -> None:
        with StartProgress() as progress:
            progress("loading weights", 1, 3)
            raise RuntimeError("bad")

    with pytest.raises(RuntimeError, match="bad"):
        start()
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h")  # the cursor is back
