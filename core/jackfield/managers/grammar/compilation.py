"""One compilation: a fork of the warm compiler's process, with a limit of time and of memory, which answers over a pipe."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from contextlib import suppress

import msgspec

from jackfield.hookspecs.grammar import GrammarBackend, GrammarError, GrammarSpec
from jackfield.managers.grammar.messages import MAX_WORDS, Compile, Compiled, Failed, Refused
from jackfield.stack.loading.imports import told

MOST_BYTES = 32 * 2**20
"""Of a compiled grammar; beyond, it is a failure of memory."""
_PR_SET_PDEATHSIG = 1


class _Answer(msgspec.Struct, frozen=True):
    """How a fork ended by itself."""

    kind: str  # "compiled", "refused", "memory", "error"
    data: bytes = b""
    message: str = ""
    keyword: str = ""


class Compilation:
    """job     number of the request for it
    pipe    readable when there is something to `read`
    deadline   on the monotonic clock; then it should be ended with `kill`
    """

    def __init__(self, order: Compile, backend: GrammarBackend, *, timeout: float, memory: int) -> None:
        """Forks. To be made by a process that has one thread."""
        self.job = order.job
        self._began = time.monotonic()
        self.deadline = self._began + timeout
        self._told = bytearray()
        self.pipe, theirs = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _live(order.spec, backend, theirs, timeout, memory)
        os.close(theirs)

    def read(self) -> Compiled | Refused | Failed | None:
        """Take what is in the pipe; the answer at its end."""
        piece = os.read(self.pipe, 1 << 20)
        if piece:
            self._told += piece
            return None
        status = self._reap()
        seconds = time.monotonic() - self._began
        try:
            answer = msgspec.msgpack.decode(self._told, type=_Answer)
        except msgspec.DecodeError:
            code = os.waitstatus_to_exitcode(status)
            how = signal.Signals(-code).name if code < 0 else f"code {code}"
            return Failed(job=self.job, why="crash", words=f"its process ended with {how}", seconds=seconds)
        if answer.kind == "compiled":
            return Compiled(job=self.job, data=answer.data, seconds=seconds)
        if answer.kind == "refused":
            return Refused(job=self.job, message=answer.message, keyword=answer.keyword, seconds=seconds)
        return Failed(
            job=self.job,
            why="memory" if answer.kind == "memory" else "error",
            words=answer.message,
            seconds=seconds,
        )

    def kill(self) -> Failed:
        """End it now: it took too long, or nobody waits for it."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._reap()
        return Failed(job=self.job, why="timeout", words="", seconds=time.monotonic() - self._began)

    def _reap(self) -> int:
        os.close(self.pipe)
        return os.waitpid(self._pid, 0)[1]


def _live(spec: GrammarSpec, backend: GrammarBackend, pipe: int, timeout: float, memory: int) -> None:
    """The fork's life. Does not return."""
    try:
        # If the process that watches the time is gone, the system ends this one.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout + 1)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_memory(memory)
        answer = msgspec.msgpack.encode(_compile(spec, backend))
        with os.fdopen(pipe, "wb") as stream:
            stream.write(answer)
    finally:
        os._exit(0)  # nothing that the parent had begun to write is flushed, and no handler of it runs


def _compile(spec: GrammarSpec, backend: GrammarBackend) -> _Answer:
    try:
        data: object = backend.compile(spec)
        if not isinstance(data, bytes):
            return _Answer("error", message=f"compile returned a {type(data).__name__}, not bytes")
        if len(data) > MOST_BYTES:
            return _Answer("memory", message=f"compiled it has {len(data)} bytes")
        return _Answer("compiled", data=data)
    except GrammarError as error:
        return _Answer("refused", message=_short(error.message), keyword=_short(error.keyword))
    except MemoryError:
        return _Answer("memory")
    except BaseException as error:
        # A compiler in C++ that gets no memory says so in an exception of another type.
        return _Answer("memory" if "bad_alloc" in str(error) else "error", message=_short(told(error)))


def _short(text: object) -> str:
    return str(text)[:MAX_WORDS].encode("utf-8", "replace").decode()


def _limit_memory(memory: int) -> None:
    """So much more address space than the fork begins with. Where the system does not tell that, there is no limit."""
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
