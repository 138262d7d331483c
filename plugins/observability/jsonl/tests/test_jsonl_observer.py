"""The JSON-lines observer: what is in the files after the hooks were called."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from jackfield.hookspecs import (
    Advance,
    BatchScheduled,
    ObserverContext,
    PassedOver,
    ProcessInfo,
    RequestFinished,
    RequestReceived,
    StackChanged,
    StepDecision,
    StepRecord,
    WaitReason,
)
from jackfield_observability_jsonl.jsonl import jackfield_observer
from jackfield_observability_jsonl.observer import JsonlObserver
from jackfield_observability_jsonl.options import JsonlOptions
from jackfield_observability_jsonl.run_log import RunLog

Start = Callable[..., JsonlObserver]


def process(role: str = "inline", pid: int = 7) -> ProcessInfo:
    return ProcessInfo(role=role, pid=pid, stack_hash="ab12")


@pytest.fixture
def make() -> Iterator[Callable[..., JsonlObserver]]:
    made: list[JsonlObserver] = []

    def one(directory: Path, **options: Any) -> JsonlObserver:
        context = ObserverContext(
            kind="observer",
            name="jsonl",
            instance="jsonl",
            options=JsonlOptions(directory=directory, **options),
            process=process(),
        )
        made.append(jackfield_observer(context))
        return made[-1]

    yield one
    for observer in made:
        observer.jackfield_process_stopping(process())


@pytest.fixture
def start(make: Callable[..., JsonlObserver]) -> Start:
    def started(directory: Path, role: str = "inline", **options: Any) -> JsonlObserver:
        observer = make(directory, **options)
        observer.jackfield_process_started(process(role))
        return observer

    return started


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


DECIDED = StepDecision(
    step=4,
    at=1.75,
    waiting=2,
    running=3,
    free=100,
    evictable=0,
    candidates=(5, 6),
    chosen=(Advance(uid=5, tokens=7, cached=2),),
    passed=(PassedOver(uid=6, reason=WaitReason.TWIN, numbers={"cached": 3}),),
    stopped=PassedOver(uid=7, reason=WaitReason.MEMORY, numbers={"needed": 9}),
)
RECEIVED = RequestReceived(rid="a", received_at=1.5, prompt_tokens=3, max_new_tokens=9, stream=True)
FINISHED = RequestFinished(
    rid="a",
    finish_type="stop",
    prompt_tokens=3,
    completion_tokens=2,
    cached_tokens=1,
    e2e_latency=0.25,
    stage_times={"queue": 0.1},
)
SCHEDULED = BatchScheduled(
    step=4,
    at=2.0,
    uids=np.array([1, 2**40]),
    new_tokens=np.array([3, 1], dtype=np.int32),
    computed=np.array([0, 8], dtype=np.int32),
    waiting=5,
    running=2,
    free_slots=100,
)
CHANGED = StackChanged(
    epoch=1,
    stack_hash="cd",
    previous_hash="ab",
    at=3.0,
    step=4,
    kind="schedule_policy",
    name="lpm",
    instance="lpm",
    distribution="d",
    version="1",
    previous="fcfs",
)
COMMITTED = StepRecord(
    step=4,
    started=2.0,
    ended=2.5,
    uids=np.array([1]),
    tokens=np.array([3], dtype=np.int32),
    admitted=(1,),
    aborted=(9,),
)


def test_every_event_becomes_a_line(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "new" / "logs"
    observer = start(directory)
    observer.jackfield_requests_received([RECEIVED, RECEIVED])
    observer.jackfield_batch_scheduled(SCHEDULED)
    observer.jackfield_batch_committed(COMMITTED)
    observer.jackfield_requests_retracted([5, 6])
    observer.jackfield_requests_finished([FINISHED])
    requests = lines(directory / "requests.jsonl")  # before the end: each line is there at once
    assert [row["event"] for row in requests] == ["started", "received", "received", "finished"]
    assert requests[0].items() >= {"role": "inline", "pid": 7, "stack_hash": "ab12"}.items()
    assert requests[1] == {
        "event": "received",
        "rid": "a",
        "received_at": 1.5,
        "prompt_tokens": 3,
        "max_new_tokens": 9,
        "stream": True,
    }
    assert requests[3] == {
        "event": "finished",
        "rid": "a",
        "finish_type": "stop",
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cached_tokens": 1,
        "e2e_latency": 0.25,
        "stage_times": {"queue": 0.1},
    }
    observer.jackfield_process_stopping(process())
    steps = lines(directory / "steps.jsonl")
    assert [row["event"] for row in steps] == ["started", "scheduled", "committed", "retracted", "stopped"]
    assert steps[1]["uids"] == [1, 2**40]
    assert (steps[1]["new_tokens"], steps[1]["computed"], steps[1]["free_slots"]) == ([3, 1], [0, 8], 100)
    assert (steps[2]["admitted"], steps[2]["finished"], steps[2]["aborted"]) == ([1], [], [9])
    assert steps[3]["uids"] == [5, 6]


def test_each_process_writes_its_own_file(tmp_path: Path, start: Start) -> None:
    observer = start(tmp_path, "main")
    observer.jackfield_requests_received([RECEIVED])
    observer.jackfield_process_stopping(process("main"))
    assert [path.name for path in tmp_path.iterdir()] == ["requests.jsonl"]
    observer = start(tmp_path, "scheduler")
    observer.jackfield_batch_scheduled(SCHEDULED)
    observer.jackfield_process_stopping(process("scheduler"))
    assert len(lines(tmp_path / "steps.jsonl")) == 3
    assert len(lines(tmp_path / "requests.jsonl")) == 3
    observer = start(tmp_path, "detokenizer")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lives.jsonl", "requests.jsonl", "steps.jsonl"]


def test_a_new_stack_stands_in_every_file(tmp_path: Path, start: Start) -> None:
    observer = start(tmp_path)
    observer.jackfield_stack_changed(CHANGED)
    observer.jackfield_process_stopping(process())
    for name in ("requests.jsonl", "steps.jsonl", "lives.jsonl"):
        _, changed, _ = lines(tmp_path / name)
        assert (changed["event"], changed["epoch"], changed["stack_hash"], changed["step"]) == (
            "stack_changed",
            1,
            "cd",
            4,
        )
        assert (changed["previous"], changed["name"]) == ("fcfs", "lpm")


def test_a_second_run_appends(tmp_path: Path, start: Start) -> None:
    for _ in range(2):
        observer = start(tmp_path)
        observer.jackfield_requests_finished([FINISHED])
        observer.jackfield_process_stopping(process())
    events = [row["event"] for row in lines(tmp_path / "requests.jsonl")]
    assert events == ["started", "finished", "stopped"] * 2


def test_text_is_written_when_it_was_granted_whatever_is_in_it(tmp_path: Path, start: Start) -> None:
    observer = start(tmp_path)
    odd = 'a "b"\n\x00 \u2028 日本 😀 \udc80'
    observer.jackfield_requests_received(
        [RequestReceived(rid="b", received_at=0.0, prompt_tokens=1, max_new_tokens=1, stream=False, prompt=odd)]
    )
    raw = (tmp_path / "requests.jsonl").read_bytes()
    assert raw.count(b"\n") == 2
    assert json.loads(raw.split(b"\n")[1])["prompt"] == odd
    assert "日本".encode() in raw


def test_steps_can_be_left_out(tmp_path: Path, start: Start) -> None:
    observer = start(tmp_path, steps=False)
    observer.jackfield_batch_scheduled(SCHEDULED)
    observer.jackfield_batch_committed(COMMITTED)
    observer.jackfield_requests_retracted([1])
    observer.jackfield_step_decided(DECIDED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lives.jsonl", "requests.jsonl"]


@pytest.mark.goal_row(5)
def test_two_uses_have_a_log_each(tmp_path: Path, start: Start) -> None:
    one, two = start(tmp_path / "one"), start(tmp_path / "two", steps=False)
    one.jackfield_process_stopping(process())
    two.jackfield_requests_finished([FINISHED])
    two.jackfield_process_stopping(process())
    events = [[row["event"] for row in lines(tmp_path / name / "requests.jsonl")] for name in ("one", "two")]
    assert events == [["started", "stopped"], ["started", "finished", "stopped"]]


def test_calls_before_the_start_and_after_the_end_are_errors(tmp_path: Path, make: Start) -> None:
    observer = make(tmp_path)
    with pytest.raises(RuntimeError, match="before it was started"):
        observer.jackfield_requests_finished([FINISHED])
    observer.jackfield_process_stopping(process())
    observer.jackfield_process_started(process())
    observer.jackfield_process_stopping(process())
    with pytest.raises(RuntimeError, match="after it was stopped"):
        observer.jackfield_batch_committed(COMMITTED)


def test_a_directory_that_cannot_be_made_is_an_error_and_leaves_nothing_open(
    tmp_path: Path, make: Start, start: Start
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="the option directory names something else"):
        make(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        start(tmp_path / "file" / "logs")
    (tmp_path / "logs" / "steps.jsonl").mkdir(parents=True)
    with pytest.raises(OSError, match="steps"):
        start(tmp_path / "logs")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_directory_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="directory"):
        JsonlOptions.model_validate({})
    with pytest.raises(ValidationError, match="directroy"):
        JsonlOptions.model_validate({"directory": tmp_path, "directroy": "x"})


def test_descriptors_are_closed_even_if_the_last_line_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RunLog(tmp_path, steps=True)
    before = len(os.listdir("/proc/self/fd"))
    log.open(ProcessInfo(role="inline", pid=1, stack_hash="0"))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space left"):
        log.close(ProcessInfo(role="inline", pid=1, stack_hash="0"))
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_decision_is_one_line_and_a_life_is_one_line_of_its_own_file(tmp_path: Path, start: Start) -> None:
    observer = start(tmp_path)
    observer.jackfield_step_decided(DECIDED)
    observer.jackfield_requests_explained([{"id": "a", "events": []}, {"id": "b", "events": []}])
    observer.jackfield_process_stopping(process())
    _, decided, _ = lines(tmp_path / "steps.jsonl")
    assert (decided["event"], decided["step"], decided["candidates"]) == ("decided", 4, [5, 6])
    assert decided["chosen"] == [{"uid": 5, "tokens": 7, "cached": 2}]
    assert decided["passed"] == [{"uid": 6, "reason": "twin", "cached": 3}]
    assert decided["stopped"] == {"uid": 7, "reason": "memory", "needed": 9}
    assert [line["id"] for line in lines(tmp_path / "lives.jsonl")[1:-1]] == ["a", "b"]
