"""Compiles grammars without keeping anybody waiting: jobs in, outcomes out, a thread between them that speaks with the
compiler's process and loads what comes. A process that dies is started again; what it had in hand is tried once more.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from jackfield.hookspecs.grammar import CompiledGrammar, GrammarBackend, GrammarSpec
from jackfield.ipc.codec import BadMessage
from jackfield.managers.grammar.messages import Cancel, Compile, Compiled, Failed, Refused, StartFailed, Warm
from jackfield.managers.grammar.process import CompilerProcess, Start
from jackfield.managers.grammar.words import GRAMMAR_FAILED, TOO_MUCH_MEMORY, UNAVAILABLE, refusal, too_slow
from jackfield.stack.errors import PLUGIN_ERRORS

log = logging.getLogger(__name__)

START_SECONDS = 120.0
"""How long the process may take to become warm."""
SILENCE = 10.0
"""Seconds beyond a compilation's own time after which a process that has work and says nothing is stuck."""
TRIES = 2
"""Processes that a job may lose."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended. grammar: None if `error` says why not, for the client, with `status_code`. seconds: of compiling.
    timed_out: it took longer than it may."""

    job: int
    grammar: CompiledGrammar | None = None
    error: str = ""
    status_code: int = 500
    seconds: float = 0.0
    timed_out: bool = False


class Compiler(Protocol):
    """What a gate asks of it. No method blocks, `close` apart."""

    def submit(self, job: int, spec: GrammarSpec) -> None: ...

    def cancel(self, job: int) -> None:
        """No outcome need come."""
        ...

    def poll(self) -> list[Outcome]:
        """Those that ended since the last call."""
        ...

    def close(self) -> None:
        """May be called twice."""
        ...


@dataclass
class _Job:
    spec: GrammarSpec
    tries: int = 0


class ProcessCompiler:
    """start      starts the compiler's process
    backend    loads what it makes
    fault      told of every error of the backend
    timeout    seconds, as the process has them
    """

    def __init__(
        self,
        start: Start,
        backend: GrammarBackend,
        fault: Callable[[BaseException], None],
        *,
        timeout: float,
        eager: bool = False,
        news: Callable[[], None] | None = None,
    ) -> None:
        """eager: start the process now, and not with the first job. news: called on the compiler's thread when there is something
        to `poll`."""
        self._news = news
        self._start = start
        self._backend = backend
        self._fault = fault
        self._timeout = timeout
        self._orders: deque[Compile | Cancel | None] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._jobs: dict[int, _Job] = {}
        self._process: CompilerProcess | None = None
        self._heard = 0.0
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._closed = False
        if eager:
            self._begin(warm_up=True)

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        process = self._process
        return None if process is None else process.pid

    def submit(self, job: int, spec: GrammarSpec) -> None:
        self._orders.append(Compile(job=job, spec=spec))
        if self._thread is None:
            self._begin(warm_up=False)
        self._ring()

    def cancel(self, job: int) -> None:
        self._orders.append(Cancel(job=job))
        self._ring()

    def poll(self) -> list[Outcome]:
        """Raises what ended the thread: a defect of its own, or a fault of the backend where faults are to stop the run."""
        if self._failure is not None:
            raise self._failure
        found = []
        while self._outcomes:
            found.append(self._outcomes.popleft())
        return found

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._orders.append(None)
        self._ring()
        if self._thread is not None:
            self._thread.join()
        self._bell.close()
        self._ringer.close()

    def _begin(self, *, warm_up: bool) -> None:
        self._thread = threading.Thread(target=self._run, args=(warm_up,), name="jackfield-grammars", daemon=True)
        self._thread.start()

    def _ring(self) -> None:
        with suppress(BlockingIOError):  # it has been rung often enough
            self._ringer.send(b"x")

    # ---- on the thread

    def _run(self, warm_up: bool) -> None:
        try:
            if warm_up:
                self._ensure_process()
            while self._obey():
                self._send_waiting()
                self._listen()
        except BaseException as error:
            self._failure = error
            if self._news is not None:
                self._news()
        finally:
            if self._process is not None:
                self._process.close(kill=bool(self._process.sent))

    def _obey(self) -> bool:
        """Take orders; False at the end."""
        while self._orders:
            order = self._orders.popleft()
            if order is None:
                return False
            if isinstance(order, Compile):
                self._jobs[order.job] = _Job(order.spec)
            else:
                known, process = self._jobs.pop(order.job, None), self._process
                if known is not None and process is not None and order.job in process.sent:
                    process.sent.discard(order.job)
                    process.link.post(order)
        return True

    def _send_waiting(self) -> None:
        """One after the other, as the process takes them: it may be sending itself, and both would wait."""
        if not self._jobs:
            return
        process = self._ensure_process()
        if process is None or not process.warm:
            return
        for number, job in self._jobs.items():
            if process.link.unsent:
                return
            if number not in process.sent:
                if not process.sent:
                    self._heard = time.monotonic()
                process.sent.add(number)
                process.link.post(Compile(job=number, spec=job.spec))
                process.link.flush()  # that it has gone is heard when it is listened to

    def _ensure_process(self) -> CompilerProcess | None:
        if self._process is None:
            try:
                self._process = self._start()
                self._heard = time.monotonic()
            except Exception as error:
                self._fault(error)
                self._fail_all()
        return self._process

    def _listen(self) -> None:
        """Wait for an order or for the process, and hear it."""
        process = self._process
        watched = select.poll()  # not select, which knows no descriptor above 1023: a server may have more connections
        watched.register(self._bell, select.POLLIN)
        patience = None
        if process is not None:
            watched.register(process.link.fileno(), select.POLLIN | (select.POLLOUT if process.link.unsent else 0))
            limit = self._timeout + SILENCE if process.warm else START_SECONDS
            patience = self._heard + limit - time.monotonic() if process.sent or not process.warm else None
        ready = dict(watched.poll(None if patience is None else max(0.0, patience * 1000)))
        if self._bell.fileno() in ready:
            self._bell.recv(4096)
        if process is None:
            return
        happened = ready.get(process.link.fileno(), 0)
        if happened & select.POLLOUT:
            process.link.flush()
        if happened & ~select.POLLOUT:
            self._heard = time.monotonic()
            if not process.link.fill(block=False):
                self._lost(f"the grammar compiler's process (pid {process.pid}) has ended")
                return
            self._hear(process)
        elif patience is not None and not ready:
            self._lost(f"the grammar compiler's process (pid {process.pid}) says nothing and is ended")

    def _hear(self, process: CompilerProcess) -> None:
        while True:
            try:
                message = process.link.next()
            except BadMessage as error:
                self._fault(error)
                self._lost(f"the grammar compiler's process (pid {process.pid}) is not understood")
                return
            if message is None:
                return
            if isinstance(message, Warm):
                process.warm = True
                log.info("the grammar compiler is warm after %.2f s (pid %d)", message.seconds, process.pid)
            elif isinstance(message, StartFailed):
                self._fault(RuntimeError(f"the backend could not be made in its process: {message.words}"))
                process.close(kill=True)
                self._process = None
                self._fail_all()
                return
            else:
                process.sent.discard(message.job)
                job = self._jobs.pop(message.job, None)
                if job is not None:
                    self._end(self._outcome(message, job.spec))

    def _outcome(self, message: Compiled | Refused | Failed, spec: GrammarSpec) -> Outcome:
        job, seconds = message.job, message.seconds
        if isinstance(message, Refused):
            words = refusal(spec.form, message.message, message.keyword)
            return Outcome(job=job, error=words, status_code=400, seconds=seconds)
        if isinstance(message, Failed):
            return self._failed(message)
        try:
            grammar = self._backend.load(message.data)
            if not isinstance(grammar, CompiledGrammar):
                raise TypeError(f"load returned a {type(grammar).__name__}, not a CompiledGrammar")
        except PLUGIN_ERRORS as error:
            self._fault(error)
            return Outcome(job=job, error=GRAMMAR_FAILED, seconds=seconds)
        return Outcome(job=job, grammar=grammar, seconds=seconds)

    def _failed(self, message: Failed) -> Outcome:
        job, seconds = message.job, message.seconds
        if message.why == "timeout":
            return Outcome(job=job, error=too_slow(self._timeout), status_code=400, seconds=seconds, timed_out=True)
        if message.why == "memory":
            return Outcome(job=job, error=TOO_MUCH_MEMORY, status_code=400, seconds=seconds)
        self._fault(RuntimeError(f"a compilation failed: {message.words}"))
        return Outcome(job=job, error=GRAMMAR_FAILED, seconds=seconds)

    def _lost(self, why: str) -> None:
        """The process is no more, or no use. What it had in hand is tried again, but not for ever."""
        log.error("%s; it is started again for the next grammar", why)
        process, self._process = self._process, None
        assert process is not None
        for number in list(process.sent) if process.warm else list(self._jobs):
            job = self._jobs.get(number)
            if job is None:
                continue
            job.tries += 1
            if job.tries >= TRIES:
                del self._jobs[number]
                self._end(Outcome(job=number, error=UNAVAILABLE, status_code=503))
        process.close(kill=True)

    def _fail_all(self) -> None:
        for number in list(self._jobs):
            del self._jobs[number]
            self._end(Outcome(job=number, error=UNAVAILABLE, status_code=503))

    def _end(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if self._news is not None:
            self._news()
