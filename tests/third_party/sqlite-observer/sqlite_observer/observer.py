"""Rows are held back and written many at a time, so that a hook costs an append and now and then one transaction. Several
processes may write the same file; SQLite orders them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

from jackfield.hookspecs import ProcessInfo, RequestFinished, StepRecord, hookimpl
from sqlite_observer.options import SqliteOptions

COLUMNS = {
    "requests": "stack_hash, rid, finish_type, prompt_tokens, completion_tokens, cached_tokens, e2e_latency, queue",
    "steps": "stack_hash, step, started, ended, requests, prefills, tokens, retracted",
}
WAIT_S = 10.0
"""How long to wait for another process that writes."""


class SqliteObserver:
    def __init__(self, options: SqliteOptions, stack_hash: str) -> None:
        self._most = options.rows_at_once
        self._stack_hash = stack_hash
        self._lock = threading.Lock()  # hooks of requests and the end of the process may come on different threads
        self._rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in COLUMNS}
        self._db = sqlite3.connect(options.path, timeout=WAIT_S, check_same_thread=False)
        with self._db:
            for table, columns in COLUMNS.items():
                self._db.execute(f"create table if not exists {table} ({columns})")

    @hookimpl
    def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
        for r in requests:
            counts = (r.prompt_tokens, r.completion_tokens, r.cached_tokens)
            self._add("requests", r.rid, r.finish_type, *counts, r.e2e_latency, r.stage_times.get("queue"))

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        counts = (len(record.uids), record.prefills, int(record.tokens.sum()), len(record.retracted))
        self._add("steps", record.step, record.started, record.ended, *counts)

    @hookimpl
    def jackfield_process_stopping(self, process: ProcessInfo) -> None:
        with self._lock:
            self._write()
            self._db.close()

    def _add(self, table: str, *values: Any) -> None:
        with self._lock:
            self._rows[table].append((self._stack_hash, *values))
            if sum(map(len, self._rows.values())) >= self._most:
                self._write()

    def _write(self) -> None:
        with self._db:
            for table, rows in self._rows.items():
                places = ", ".join("?" * len(COLUMNS[table].split(", ")))
                self._db.executemany(f"insert into {table} values ({places})", rows)
        for rows in self._rows.values():
            rows.clear()
