"""A gate inside a whole scheduler, with a worker that checks every KV slot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from file_gate.options import FileGateOptions
from file_gate.plugin import FileGate

from jackfield.testing.scheduler_harness import SchedulerHarness

NEVER = 1e6
"""Seconds between two looks of the gate's own; the tests look themselves."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[FileGate]:
    gate = FileGate(FileGateOptions(path=tmp_path / "open", interval_s=NEVER))
    yield gate
    gate.close()


def test_requests_wait_for_the_file_and_run_then(gate: FileGate, tmp_path: Path) -> None:
    run = SchedulerHarness(gates=[("gate.file", gate)])
    rids = [run.submit([n, n + 1, n + 2], max_new_tokens=3) for n in range(4)]
    for _ in range(5):
        run.turn()
    assert not any(rid in run.answers and run.answers[rid].ids for rid in rids)
    run.abort(rids[1])
    (tmp_path / "open").write_text("")
    gate.look()
    late = run.submit([9, 8, 7], max_new_tokens=3)
    run.run()
    for rid in (rids[0], rids[2], rids[3], late):
        assert run.answers[rid].ids == run.expected(rid, 3)
    aborted = run.answers[rids[1]].finish
    assert aborted is not None
    assert aborted.type == "abort"
    run.assert_at_rest()


def test_a_closed_gate_refuses_who_waits_and_who_comes(gate: FileGate, tmp_path: Path) -> None:
    run = SchedulerHarness(gates=[("gate.file", gate)])
    waiting = run.submit([1, 2], max_new_tokens=3)
    run.turn()
    (tmp_path / "open").write_text("closed Come back on Monday.")
    gate.look()
    late = run.submit([3, 4], max_new_tokens=3)
    run.run()
    for rid in (waiting, late):
        finish = run.answers[rid].finish
        assert finish is not None
        assert (finish.message, finish.status_code) == ("Come back on Monday.", 503)
    run.assert_at_rest()
