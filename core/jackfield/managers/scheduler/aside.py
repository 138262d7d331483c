"""Work that may take longer than a step, on a thread of its own, and no longer than a limit. Knows nothing of the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def aside(work: Callable[[], T], name: str, *, limit: float) -> Future[T]:
    """What the work gives or raises; TimeoutError after `limit` seconds. Then the work is left alone, for nothing can
    end it: its thread is a daemon's, for which no process waits at its end. name: of the threads.
    """
    told: Future[T] = Future()
    threading.Thread(target=_watch, args=(work, told, name, limit), name=f"{name}-watch", daemon=True).start()
    return told


def _watch(work: Callable[[], T], told: Future[T], name: str, limit: float) -> None:
    done: Future[T] = Future()
    worker = threading.Thread(target=_work, args=(work, done), name=name, daemon=True)
    worker.start()
    worker.join(limit)
    if not done.done():
        told.set_exception(TimeoutError(f"its code had not answered after {limit:g} seconds"))
    elif (error := done.exception()) is not None:
        told.set_exception(error)
    else:
        told.set_result(done.result())


def _work(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # a thread of its own: none of these is an interrupt of the user's
        done.set_exception(error)
