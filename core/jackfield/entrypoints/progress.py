"""Progress of a start on stderr: bars on a terminal, a line in the log for each part otherwise."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

log = logging.getLogger(__name__)

CALM_SECONDS = 0.5


class StartProgress:
    """A context manager. Call it with (what, done, total): `what` is a part's name, such as "loading weights".

    calm   no thread draws: what is measured meanwhile would pay for it. Drawn is when it is called, twice a second at most
    """

    def __init__(self, *, calm: bool = False) -> None:
        self._calm = calm
        self._drawn = 0.0
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
            if self._calm and (done in (0, total) or time.monotonic() - self._drawn >= CALM_SECONDS):
                self._bars.refresh()
                self._drawn = time.monotonic()
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
        self._bars = self._stack.enter_context(
            Progress(*columns, console=Console(stderr=True), auto_refresh=not self._calm)
        )
