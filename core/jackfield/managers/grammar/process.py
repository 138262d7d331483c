"""The compiler's process as the scheduler's side sees it: started, spoken to, seen off. Knows no request."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

from jackfield.ipc.framed_link import FramedLink
from jackfield.managers.grammar.messages import CompilerOrders, FromCompiler

END_SECONDS = 5.0
"""How long it may take to end by itself; then it is killed."""

_THREADLESS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""It forks, so libraries should start no pools; and each arena of malloc reserves address space, which has a limit there."""


class CompilerProcess:
    """warm     whether it has said that it can compile
    sent     jobs that it was told of and has not answered
    """

    def __init__(self, orders: CompilerOrders, environment: Mapping[str, str]) -> None:
        """Raises OSError if the system starts no process."""
        self.warm = False
        self.sent: set[int] = set()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "jackfield.managers.grammar.child", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    env={**environment, **_THREADLESS, "PYTHONPATH": os.pathsep.join(orders.sys_path)},
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        self.link = FramedLink(ours, FromCompiler)
        self.link.send(orders)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self, *, kill: bool = False) -> None:
        """End it, with all that it compiles, and take its exit status. kill: at once; else it may end by itself."""
        self.link.close()
        if not kill:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
                return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()


Start = Callable[[], CompilerProcess]
"""Starts one."""
