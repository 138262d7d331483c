"""One child process as its parent sees it: started with its orders, reached by its link, seen off. Knows nothing of others."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jackfield.config.fields import ENVIRONMENT_PREFIX
from jackfield.config.openmp import openmp_defaults
from jackfield.config.server_args import SECRETS
from jackfield.entrypoints.child_orders import Failed, FromChild, Orders, Ready
from jackfield.ipc.framed_link import FramedLink


class Child:
    """One child process, as the supervisor's thread sees it."""

    def __init__(self, orders: Orders, directory: Path) -> None:
        self.role: str = orders.role
        self.ready: Ready | None = None
        self.failed: Failed | None = None
        self.stolen = False
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "jackfield.entrypoints.child",
                        orders.role,
                        str(os.getpid()),
                        str(theirs.fileno()),
                        str(directory),
                    ],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    env=child_environment(os.environ, orders.sys_path),
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self.link = FramedLink(ours, FromChild)
        self.link.send(orders)
        self.sentinel: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # an old kernel: the end of the link tells as well
                self.sentinel = os.pidfd_open(self.process.pid)

    @property
    def pid(self) -> int:
        return self.process.pid

    def reap(self) -> None:
        """Wait for its end and take its exit status. A host program may reap all children, and be faster."""
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            self.stolen = self.process.returncode is None
        self.process.wait()

    @property
    def gone(self) -> bool:
        """Reaps it."""
        return self.process.poll() is not None

    def how_it_ended(self) -> str:
        code = self.process.returncode
        told = f": {self.failed.message}" if self.failed is not None else ""
        if self.stolen:
            return f"the {self.role} process (pid {self.pid}) ended, and other code in this process took its exit status{told}"
        if code < 0:
            why = " (from outside, or by the system for want of memory)" if -code == signal.SIGKILL else ""
            return f"the {self.role} process (pid {self.pid}) was killed by {_signal_name(-code)}{why}{told}"
        hint = (
            " while it started, without a word; `jackfield plugins doctor` tells of plugins whose import ends a process"
            if self.ready is None and self.failed is None
            else ""
        )
        return f"the {self.role} process (pid {self.pid}) ended with code {code}{told}{hint}"

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def wait(self, seconds: float) -> None:
        """Until it has ended, at most so long."""
        if self.sentinel is not None:
            ended = select.poll()
            ended.register(self.sentinel, select.POLLIN)
            ended.poll(seconds * 1000)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)

    def close(self) -> None:
        self.link.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None


_SECRET_VARIABLES = frozenset(ENVIRONMENT_PREFIX + field.upper() for field in SECRETS)


def child_environment(environment: Mapping[str, str], sys_path: list[str]) -> dict[str, str]:
    """What the children find in theirs: with the defaults for OpenMP, which must be there before torch is imported, and without
    the keys of the HTTP routes, which stay with the process that has the routes."""
    kept = {name: value for name, value in environment.items() if name not in _SECRET_VARIABLES}
    return {**openmp_defaults(environment), **kept, "PYTHONPATH": os.pathsep.join(sys_path)}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
