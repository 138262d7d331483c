"""The worker by hand, and a recording through a whole engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from replay_worker.options import ReplayOptions
from replay_worker.worker import ReplayWorker

from jackfield.hookspecs import Shard, WorkerContext
from jackfield.testing.worker_driver import WorkerDriver


def driver(options: ReplayOptions, **more: Any) -> WorkerDriver:
    fields: dict[str, Any] = {
        "kind": "worker",
        "name": "replay",
        "instance": "replay",
        "options": options,
        "shard": Shard(),
        "device": "cpu",
        "dtype": "float32",
        "seed": 0,
        "page_size": 4,
        "max_running": 4,
        "max_total_tokens": 256,
        "max_context": 64,
        "max_tokens": 256,
        "vocab_size": 300,
    }
    return WorkerDriver(ReplayWorker(options, WorkerContext(**(fields | more))))


def recording(path: Path, *pairs: tuple[Any, Any]) -> ReplayOptions:
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": answer}) + "\n" for prompt, answer in pairs))
    return ReplayOptions(path=path)


def test_what_was_recorded_is_answered_and_then_comes_the_end(tmp_path: Path) -> None:
    options = recording(tmp_path / "r", ([1, 2], [7, 8, 9]), ("AB", "xy"))
    run = driver(options, eos_ids=(2,), encode=lambda text: list(text.encode()))
    assert run.generate([1, 2], 5) == [7, 8, 9, 2, 2]
    assert run.generate([65, 66], 2) == [120, 121]
    assert driver(recording(tmp_path / "r", ([1], [5, 6]))).generate([1], 5) == [5, 6, 5, 6, 5]


def test_what_was_not_recorded_is_an_error_or_something_else(tmp_path: Path) -> None:
    run = driver(recording(tmp_path / "r", ([1], [5])))
    known, unknown = run.open([1]), run.open([3])
    run.step(unknown, known)
    assert unknown.errors == ["nothing was recorded for this prompt"]
    assert (known.errors, known.output) == ([], [5])
    assert driver(ReplayOptions(otherwise=[4])).generate([3], 2) == [4, 4]


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"prompt": [1]}', '{"prompt": [], "answer": [1]}', '{"prompt": "a", "answer": [1]}']
)
def test_a_line_that_cannot_be_replayed_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "r").write_text('{"prompt": [1], "answer": [2]}\n' + line)
    with pytest.raises(ValueError, match="line 2"):
        driver(ReplayOptions(path=tmp_path / "r"))
