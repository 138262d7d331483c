"""Starts the child processes of one replica, waits for their news, and sees all of them off. Knows roles as names only.

One thread does all of it and lives as long as they do: a child is told of its parent's death when the *thread* that started
it ends, so that no thread of a caller may start one. It sleeps until a child speaks or dies; nothing is polled.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.calls import ReplicaFailed
from jackfield.entrypoints.child_orders import Failed, Found, Orders, Progress, Ready, Stop
from jackfield.entrypoints.child_process import Child

log = logging.getLogger(__name__)

KILL_AFTER = 2.0
"""Seconds between SIGTERM, for a child that did not end in time, and SIGKILL."""


class ChildTraceback(Exception):
    """The cause of an error that a child told: its text is the child's traceback."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Supervisor:
    """`begin`, `wait_until_ready`, `stop`: after the last, none of the children is left, whatever happened.

    on_failure    called on the supervisor's thread, once, when a child has died that was ready
    on_progress   called there with (role, what, done, total)
    directory     of the run, which the last of them removes if this process dies
    expected      the hash, and package -> digest, that each child must find
    """

    def __init__(
        self,
        orders: list[Orders],
        directory: Path,
        *,
        expected: tuple[str, Mapping[str, str]],
        on_failure: Callable[[ReplicaFailed], None],
        on_progress: Callable[[str, str, int, int], None] | None = None,
    ) -> None:
        self._orders = orders
        self._directory = directory
        self._expected = expected
        self._on_failure = on_failure
        self._on_progress = on_progress
        self._children: list[Child] = []
        self._failure: BaseException | None = None
        self._settled = threading.Event()
        self._deadline: float | None = None
        self._stopping = threading.Event()
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="jackfield-supervisor", daemon=True)

    def begin(self) -> None:
        """Start all children at once."""
        self._thread.start()

    def wait_until_ready(self) -> dict[str, Ready]:
        """Role -> what it said.

        Raises ConfigurationError (a child refused) or ReplicaFailed (it crashed, or was killed); nothing is left then.
        """
        self._settled.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return {child.role: child.ready for child in self._children if child.ready is not None}

    @property
    def pids(self) -> list[tuple[str, int]]:
        """(role, pid), in the order of the orders."""
        return [(child.role, child.pid) for child in self._children]

    def stop(self, timeout: float) -> None:
        """Ask the children to end, see to it after `timeout` seconds, and return when all have been reaped."""
        self._deadline = time.monotonic() + timeout
        self._stopping.set()
        with contextlib.suppress(OSError):  # it has seen them off already
            self._ringer.send(b"\0")
        self._thread.join()

    # on the supervisor's thread

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        try:
            self._watch(selector)
        except BaseException as error:
            self._fail(error)
        finally:
            self._see_off(selector)
            selector.close()
            self._settled.set()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        selector.register(self._bell, selectors.EVENT_READ, None)
        for orders in self._orders:
            child = Child(orders, self._directory)
            self._children.append(child)
            _register(selector, child)
        while not self._stopping.is_set():
            for key, _ in selector.select():
                child = key.data
                if child is None:
                    continue
                self._listen(child, selector, link=key.fileobj is child.link)
            if all(child.ready is not None for child in self._children):
                self._settled.set()

    def _listen(self, child: Child, selector: selectors.BaseSelector, *, link: bool) -> None:
        """Hear what the child has said. Raises if it has died, or what it told if that ends the replica."""
        heard = child.link.fill(block=False)
        while not link and child.link.fill(block=False):  # all of its last words
            pass
        while (message := child.link.next()) is not None:
            self._hear(child, message)
        if link and not heard:
            selector.unregister(child.link)
        if not link or (not heard and child.sentinel is None):
            child.reap()
            raise ReplicaFailed(child.how_it_ended())

    def _hear(self, child: Child, message: Any) -> None:
        match message:
            case Found():
                self._compare(child, message)
            case Progress(what=what, done=done, total=total):
                if self._on_progress is not None:
                    self._on_progress(child.role, what, done, total)
            case Ready():
                child.ready = message
            case Failed(refused=True) if child.ready is None:
                raise ConfigurationError(message.message) from ChildTraceback(message.traceback)
            case Failed():
                child.failed = message
                cause = ChildTraceback(message.traceback)
                raise ReplicaFailed(f"the {child.role} process (pid {child.pid}) failed: {message.message}") from cause

    def _compare(self, child: Child, found: Found) -> None:
        stack_hash, contents = self._expected
        if found.stack_hash == stack_hash:
            return
        other = sorted(name for name in contents if found.contents.get(name) != contents[name])
        what = f"in the package {', '.join(other)}" if other else f"(stack hash {found.stack_hash[:12]})"
        raise ConfigurationError(
            f"the {child.role} process found other code than the main process {what}: it was changed after this process "
            "had read it, or the two import it from different places. Start again, and see what PYTHONPATH and sys.path hold"
        )

    def _fail(self, error: BaseException) -> None:
        """Whoever waits is told before the other children are seen off."""
        self._failure = error
        if not self._settled.is_set():
            return
        if isinstance(error, ReplicaFailed):
            self._on_failure(error)
        else:
            failed = ReplicaFailed(f"the replica's supervisor failed: {error}")
            failed.__cause__ = error
            self._on_failure(failed)

    def _see_off(self, selector: selectors.BaseSelector) -> None:
        """End every child that is left: in order, then by SIGTERM, then by SIGKILL; each is reaped."""
        started = self._settled.is_set()
        for child in self._children:
            child.link.send(Stop())
            if not started:
                # What is half made has nothing to put in order.
                child.send_signal(signal.SIGKILL)
        # Who was killed already needs a moment to be gone, whatever was asked for.
        deadline = self._deadline if started and self._deadline is not None else time.monotonic() + KILL_AFTER
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._reap_until(deadline)
            for child in self._left():
                log.warning("the %s process (pid %d) did not end in time: %s", child.role, child.pid, number.name)
                child.send_signal(number)
            deadline = time.monotonic() + KILL_AFTER
        for child in self._children:
            child.process.wait()
            child.close()
        self._bell.close()
        self._ringer.close()

    def _reap_until(self, deadline: float) -> None:
        while (left := self._left()) and (rest := deadline - time.monotonic()) > 0:
            left[0].wait(rest)

    def _left(self) -> list[Child]:
        return [child for child in self._children if not child.gone]


def _register(selector: selectors.BaseSelector, child: Child) -> None:
    selector.register(child.link, selectors.EVENT_READ, child)
    if child.sentinel is not None:
        selector.register(child.sentinel, selectors.EVENT_READ, child)
