"""A server's life: bind, launch, serve, drain, end. Knows signals and exit codes; no route and no request.

The socket listens before the model is loaded, so a port in use is told at once and clients get 503 instead of a refused
connection. SIGTERM or SIGINT: new requests get 503, open ones finish, until --drain-timeout; a second one ends it at once.
If the replica fails, open requests are told, and the process ends with 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import uvicorn

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.driver import Driver
from jackfield.entrypoints.http.app import App
from jackfield.entrypoints.http.guards.auth import LOOPBACK
from jackfield.entrypoints.http.protocol import HttpProtocol
from jackfield.entrypoints.http.service import ServedReplica, Service, Serving
from jackfield.entrypoints.http.status import Phase
from jackfield.entrypoints.server_info import error_text
from jackfield.entrypoints.supervisor import KILL_AFTER
from jackfield.entrypoints.warmup import warm_up

log = logging.getLogger(__name__)

Launch = Callable[[], ServedReplica]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
FAILED = 1

LAST_WORDS_SECONDS = 2.0
"""What open requests have to send their last words, once the replica has failed or the drain timeout is over."""

POLL_SECONDS = 0.02

SWITCH_SECONDS = 0.0005
"""After which a thread of this process gives way to another. The event loop shares the interpreter with the thread that takes the
tokens in; with Python's own 5 ms, a step's tokens would wait that long, and then go out several in a chunk."""


class CannotListen(Exception):
    """The address cannot be had; the text says which and why."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0: any free one. Raises CannotListen."""
    where = url(host, port)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CannotListen(f"cannot listen on {where}: {error.strerror or error}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # At once: two sockets may be bound to one port as long as neither listens.
        bound.listen(2048)
    except OSError as error:
        bound.close()
        hint = "; another process has this port: choose another with --port, or 0 for any" if port else ""
        raise CannotListen(f"cannot listen on {where}: {error.strerror}{hint}") from error
    return bound


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server:
    """One run.

    launch     makes the replica; called on a thread that lives until the replica has ended, because a child may be tied to
               the life of the thread that started it
    announce   is told the one line that says that the server is up
    """

    def __init__(self, args: ServerArgs, launch: Launch, *, announce: Callable[[str], None] | None = None) -> None:
        self.service = Service(args)
        self.service.on_stop = self._failed
        self._app = App(self.service, complete=False)
        self._args = args
        self._launch = launch
        self._announce = announce or _print_line
        self._stop = asyncio.Event()
        self._signals = 0
        self._interrupted = False
        self._error: BaseException | None = None
        self._end_replica = threading.Event()
        self._replica = threading.Thread(target=self._run_replica, name="jackfield-replica", daemon=True)
        self._url = ""

    async def run(self, sock: socket.socket) -> int:
        """Serve until the end; the exit code. Raises what the launch raised."""
        loop = self._loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._url = url(self._args.host, sock.getsockname()[1])
        if self._args.host not in LOOPBACK and self._args.api_key is None:
            log.warning("%s is open to others, and no --api-key is set: whoever reaches it may use it", self._url)
        http = _Uvicorn(_uvicorn_config(self._app, self._args))
        serving = asyncio.ensure_future(http.serve(sockets=[sock]))
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            self._replica.start()
            await self._stop.wait()
            await self._wait_for_open_calls()
            http.should_exit = True
            await serving
        finally:
            self.service.close()
            await self._end()
            for number in SIGNALS:
                loop.remove_signal_handler(number)
        if self._interrupted:
            return 0
        if self._error is not None and self.service.status.phase is Phase.STARTING:
            raise self._error
        return 0 if self._error is None else FAILED

    # the thread of the replica

    def _run_replica(self) -> None:
        driver = None
        try:
            replica = self._launch()
            driver = Driver(replica, on_failure=lambda error: self._tell(self._failed, error))
            if not self._args.skip_server_warmup:
                manager = replica.tokenizer_manager
                warm_up(driver, has_tokenizer=manager.tokenizer is not None, pooling=manager.limits.pooling)
            replica.monitor.ready()
            self._tell(self._up, Serving(replica=replica, mover=driver))
        except BaseException as error:
            self._tell(self._failed, error)
            if driver is None:
                return
        self._end_replica.wait()
        try:
            driver.stop()
        except Exception as error:
            # Too late for those whom `_failed` would tell; the exit code still has to say it.
            log.exception("the replica did not end in order")
            self._error = self._error or error

    def _tell(self, hear: Callable[..., None], *news: object) -> None:
        # The loop is closed when the server ended without waiting for this thread; then nobody wants to know.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(hear, *news)

    # the event loop

    def _up(self, serving: Serving) -> None:
        if self._stop.is_set():
            return
        replica = serving.replica
        self._app.add(replica.routes)
        self.service.up(serving)
        self._announce(f"jackfield: {replica.model_name} is served at {self._url} (stack {replica.stack_hash[:12]})")

    def _failed(self, error: BaseException) -> None:
        if self._error is not None:
            return
        self._error = error
        if self.service.status.phase is not Phase.STARTING:
            log.critical("the replica has failed, so the server ends: %s", error_text(error), exc_info=error)
            self.service.status.fail()
        self._stop.set()

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals > 2:
            _leave(FAILED)
        if self._signals == 2:
            log.warning("ending at once")
            self._forced = asyncio.ensure_future(self._force())
            return
        if self.service.status.phase is Phase.STARTING:
            log.warning("shutting down while starting")
            self._interrupted = True
            self._stop.set()
            return
        if count := self.service.open_calls:
            log.warning(
                "shutting down: %d open requests have %d s to finish; a second signal ends them",
                count,
                self._args.drain_timeout,
            )
        else:
            log.info("shutting down")
        self.service.status.drain()
        self._stop.set()

    async def _wait_for_open_calls(self) -> None:
        """Until the open requests have ended, for as long as they may take; then they are aborted and have a moment more."""
        if self._error is None and not await self._idle_within(self._args.drain_timeout):
            log.warning(
                "%d requests were still open after the drain timeout; they are aborted", self.service.open_calls
            )
            self.service.abort_all()
        await self._idle_within(LAST_WORDS_SECONDS)

    async def _idle_within(self, seconds: float) -> bool:
        deadline = self._loop.time() + seconds
        while self.service.open_calls and self._loop.time() < deadline:
            if self._error is not None:
                deadline = min(deadline, self._loop.time() + LAST_WORDS_SECONDS)
            await asyncio.sleep(POLL_SECONDS)
        return self.service.open_calls == 0

    async def _end(self) -> None:
        """Let the replica end in order; if it does not, or the launch cannot be interrupted, go without it."""
        if self._interrupted:
            await self._kill_replica()
            if self._replica.is_alive():
                _leave(0)
            return
        self._end_replica.set()
        # Later than the supervisor, who kills children that do not end by themselves, and then removes what they shared.
        deadline = self._loop.time() + self._args.shutdown_timeout + 2 * KILL_AFTER + LAST_WORDS_SECONDS
        while self._replica.is_alive():
            if self._loop.time() > deadline:
                log.error("the replica did not end in time; the process ends without it")
                await self._kill_replica()
                _leave(FAILED)
            await asyncio.sleep(POLL_SECONDS)

    async def _force(self) -> None:
        await self._kill_replica()
        _leave(FAILED)

    async def _kill_replica(self) -> None:
        """Kill the children. Their death is the end of a launch or of a replica, which then removes what they shared; it gets
        a moment for that."""
        self._end_replica.set()
        deadline = self._loop.time() + LAST_WORDS_SECONDS
        while self._replica.is_alive() and self._loop.time() < deadline:
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            await asyncio.sleep(POLL_SECONDS)


def _leave(code: int) -> None:
    """End this process now, whatever its threads do. Children see their descriptor close, and end."""
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def _print_line(line: str) -> None:
    print(line, flush=True)


def _uvicorn_config(app: App, args: ServerArgs) -> uvicorn.Config:
    # Uvicorn warns of every malformed request, which is the client's affair.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return uvicorn.Config(
        app,
        http=type("HttpProtocol", (HttpProtocol,), {"head_seconds": float(args.receive_timeout)}),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=args.max_header_bytes,
        timeout_graceful_shutdown=int(LAST_WORDS_SECONDS),
    )


class _Uvicorn(uvicorn.Server):
    """Signals are this module's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
