"""Waiting for a quiet machine: what is told of it, and when it ends. The machine's load and its clock are the test's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jackfield.entrypoints.bench import machine


def busy(monkeypatch: pytest.MonkeyPatch, *shares: float) -> None:
    """Each look takes a second and finds the next share; the last one stays."""
    clock, left = SimpleNamespace(now=0.0), list(shares)

    def look(seconds: float) -> float:
        clock.now += seconds
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(machine, "_busy_share", look)
    monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=lambda: clock.now))


def test_a_wait_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    busy(monkeypatch, 1.0, 0.9, 0.8, 0.05)
    assert machine.wait_until_quiet(30.0)
    told = capsys.readouterr().err.splitlines()
    assert told == ["100% of the machine is in use by others: waiting up to 30 s (--wait) until it is quiet"]


def test_a_wait_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    busy(monkeypatch, 0.6)
    assert not machine.wait_until_quiet(30.0)
    told = capsys.readouterr().err.splitlines()
    assert told[1:] == ["the machine is not quiet: 60% of it is in use by others"]
    assert not machine.wait_until_quiet(0.0)
    assert len(capsys.readouterr().err.splitlines()) == 1  # it only looked


def test_a_quiet_machine_is_not_talked_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    busy(monkeypatch, 0.05)
    assert machine.wait_until_quiet(30.0)
    assert capsys.readouterr().err == ""
