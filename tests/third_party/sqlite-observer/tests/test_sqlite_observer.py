"""What stands in the file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from sqlite_observer.observer import SqliteObserver
from sqlite_observer.options import SqliteOptions

from jackfield.hookspecs import ProcessInfo, RequestFinished, StepRecord

PROCESS = ProcessInfo(role="main", pid=1, stack_hash="abc")


def request(rid: str, seconds: float) -> RequestFinished:
    return RequestFinished(
        rid=rid,
        finish_type="stop",
        prompt_tokens=5,
        completion_tokens=7,
        cached_tokens=4,
        e2e_latency=seconds,
        stage_times={"queue": seconds / 4},
    )


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def test_requests_and_steps_are_rows_of_their_tables(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    observer = SqliteObserver(SqliteOptions(path=path), "abc")
    observer.jackfield_requests_finished(requests=[request("a", 1.0), request("b", 2.0)])
    uids, tokens = np.array([3, 4], dtype=np.int64), np.array([10, 1], dtype=np.int32)
    record = StepRecord(step=9, started=1.0, ended=1.5, uids=uids, tokens=tokens, prefills=1, retracted=(7,))
    observer.jackfield_batch_committed(record=record)
    assert rows(path, "select * from requests") == []
    observer.jackfield_process_stopping(process=PROCESS)
    assert rows(path, "select rid, e2e_latency, queue from requests") == [("a", 1.0, 0.25), ("b", 2.0, 0.5)]
    assert rows(path, "select * from steps") == [("abc", 9, 1.0, 1.5, 2, 1, 11, 1)]


def test_many_rows_are_written_before_the_end_and_a_second_run_adds(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for stack_hash, written in (("one", 3), ("two", 6)):
        observer = SqliteObserver(SqliteOptions(path=path, rows_at_once=3), stack_hash)
        observer.jackfield_requests_finished(requests=[request(f"r{n}", 1.0) for n in range(4)])
        assert rows(path, "select count(*) from requests") == [(written + (stack_hash == "two"),)]
        observer.jackfield_process_stopping(process=PROCESS)
    assert rows(path, "select stack_hash, count(*) from requests group by 1") == [("one", 4), ("two", 4)]
