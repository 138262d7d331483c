"""Gate `file`. A thread looks at the file, so that the scheduler's thread does no I/O."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from file_gate.options import FileGateOptions
from jackfield.hookspecs import Gate, GateAnswer, GateContext, GateEvent, GateRequest, RequestFault, hookimpl

CLOSED = "closed"


class FileGate(Gate):
    def __init__(self, options: FileGateOptions) -> None:
        self._path: Path = options.path
        self._text: str | None = None  # None: the file is not there
        self._waiting: set[int] = set()
        self._end = threading.Event()
        self.look()
        self._watcher = threading.Thread(target=self._watch, args=(options.interval_s,), name="file-gate", daemon=True)
        self._watcher.start()

    def look(self) -> None:
        try:
            self._text = self._path.read_text()
        except FileNotFoundError:
            self._text = None

    def _watch(self, interval_s: float) -> None:
        while not self._end.wait(interval_s):
            self.look()

    def enter(self, request: GateRequest) -> GateAnswer:
        text = self._text
        if text is None:
            self._waiting.add(request.uid)
            return GateAnswer.WAITING
        if text.startswith(CLOSED):
            raise RequestFault(text.removeprefix(CLOSED).strip() or "The gate is closed.", status_code=503)
        return GateAnswer.OPEN

    def poll(self) -> Sequence[GateEvent]:
        text = self._text
        if text is None:
            return []
        error = (text.removeprefix(CLOSED).strip() or "The gate is closed.") if text.startswith(CLOSED) else ""
        events = [GateEvent(uid=uid, error=error, status_code=503) for uid in sorted(self._waiting)]
        self._waiting.clear()
        return events

    def cancel(self, uid: int) -> None:
        self._waiting.discard(uid)

    def close(self) -> None:
        self._end.set()
        self._watcher.join()


@hookimpl
def jackfield_gate(context: GateContext) -> Gate:
    if not isinstance(context.options, FileGateOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return FileGate(context.options)
