"""Progress of a start on stderr: bars on a terminal, a line in the log for each part otherwise."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

log = logging.getLogger(__name__)


class StartProgress:
    """A context manager. Call it with (what, done, total): `what` is a part's name, such as "loading weights"."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._began: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._began:
            self._began[what] = time.monotonic()
            if sys.stderr.isatty():
                self._open()
                self._tasks[what] = self._bars.add_task(what, total=total)
        if what in self._tasks:
            self._bars.update(self._tasks[what], completed=done, total=total)
        if done >= total:
            log.info("%s: %d of %d in %.1f s", what, done, total, time.monotonic() - self._began[what])

    def __enter__(self) -> StartProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open(self) -> None:
        if self._bars is not None:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bars = self._stack.enter_context(Progress(*columns, console=Console(stderr=True)))
