"""B78: how a server starts, drains, is forced, fails, and what it leaves behind: nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http import server as module
from jackfield.entrypoints.http.server import CannotListen, bind, url
from jackfield.entrypoints.inline import InlineRuntime
from jackfield.entrypoints.launcher import launch_inline
from tests.e2e.http.servers import DEADLINE, LONG, PLAIN, SIMULATED, SLOW, Server, events, raw_events, serving, until

TOPOLOGIES = ("processes", "inline")


def body(tokens: int, stream: bool = True) -> dict[str, Any]:
    return {"input_ids": [5, 6], "sampling_params": {**LONG, "max_new_tokens": tokens}, "stream": stream}


def run_directories(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"jackfield-{pid}-*"))


@contextmanager
def draining(topology: str, *flags: str, tokens: int) -> Iterator[tuple[Server, Any, Any]]:
    """A server with one stream and one plain request under way that has just been sent SIGTERM."""
    with (
        serving(*SIMULATED, *SLOW, "--topology", topology, *flags, check=False) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        stream = pool.submit(server.post, "/generate", body(tokens))
        plain = pool.submit(server.post, "/generate", body(tokens, stream=False))
        until(lambda: server.scheduler() == (2, 0))
        server.signal(signal.SIGTERM)
        until(lambda: server.get("/health").status_code == 503)
        yield server, stream, plain


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_b78_sigterm_drains(topology: str) -> None:
    with draining(topology, tokens=150) as (server, stream, plain):
        for path, more in [("/generate", {"text": "x"}), ("/v1/completions", {"prompt": "x"})]:
            refused = server.post(path, more)
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json()["error"]["code"] == "draining"
        assert server.get("/ready").status_code == 503
        assert server.get("/ping").status_code == 200
        assert len(events(stream.result(DEADLINE))[-1]["output_ids"]) == 150
        assert len(plain.result(DEADLINE).json()["output_ids"]) == 150
        assert server.wait() == 0
        assert "Traceback" not in server.log


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_b78_the_drain_has_a_deadline(topology: str) -> None:
    with draining(topology, "--drain-timeout", "1", tokens=4000) as (server, stream, plain):
        assert events(stream.result(DEADLINE))[-1]["meta_info"]["finish_reason"]["type"] == "abort"
        assert plain.result(DEADLINE).json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert server.wait() == 0


def test_b78_a_client_that_does_not_read_does_not_keep_the_server() -> None:
    """Its answer is complete but does not fit into the connection."""
    many = {"input_ids": [5, 6], "sampling_params": {**LONG, "max_new_tokens": 1500}, "stream": True}
    request = json.dumps(many).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(request)}"
    with serving(*SIMULATED, "--drain-timeout", "1", check=False) as server:
        address = urlsplit(server.url)
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.settimeout(DEADLINE)
            deaf.connect((address.hostname, address.port))
            deaf.sendall(f"{head}\r\n\r\n".encode() + request)
            assert deaf.recv(15) == b"HTTP/1.1 200 OK"
            until(lambda: server.scheduler() == (0, 0))
            server.signal(signal.SIGTERM)
            assert server.wait() == 0


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_b78_a_second_signal_forces(topology: str) -> None:
    with draining(topology, tokens=4000) as (server, stream, plain):
        server.signal(signal.SIGINT)
        assert server.wait() == 1
        for future in (stream, plain):
            # An answer was not waited for: the connection broke off, or there was time to say why.
            try:
                text = future.result(DEADLINE).text
            except httpx.HTTPError:
                continue
            assert '"error"' in text or '"abort"' in text
        assert run_directories(server.process.pid) == []


def test_b78_main_killed_as_soon_as_there_are_children() -> None:
    """They have hardly begun, and still remove what is shared."""
    server = Server(*SIMULATED)
    try:
        main = psutil.Process(server.process.pid)
        until(lambda: "jf-detokenizer" in names(main.children()))
        children = main.children()
        server.signal(signal.SIGKILL)
        server.process.wait(DEADLINE)
        until(lambda: names(children) == [])
        assert run_directories(server.process.pid) == []
    finally:
        server.close()


def names(processes: list[psutil.Process]) -> list[str]:
    """Of those that live."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.name())
    return found


@pytest.mark.parametrize("role", ["scheduler", "detokenizer"])
def test_b78_a_child_that_does_not_move_is_killed(role: str) -> None:
    """The main process waits for the supervisor to see to it; a stopped process hears no SIGTERM."""
    with serving(*SIMULATED, "--shutdown-timeout", "1", check=False) as server:
        os.kill(server.pid(role), signal.SIGSTOP)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert run_directories(server.process.pid) == []
        assert f"the {role} process" in server.log


@pytest.mark.parametrize("role", ["scheduler", "detokenizer"])
@pytest.mark.parametrize("idle", [True, False])
def test_b78_a_dead_child_ends_the_server(role: str, idle: bool) -> None:
    with serving(*SIMULATED, *SLOW, check=False) as server, ThreadPoolExecutor(1) as pool:
        victim = server.pid(role)
        if idle:
            os.kill(victim, signal.SIGKILL)
        else:
            plain = pool.submit(server.post, "/generate", body(4000, stream=False))
            with server.client() as client, client.stream("POST", "/generate", json=body(4000)) as stream:
                # Its first event came: before that, the error would be the status.
                parts = stream.iter_text()
                told = next(parts)
                until(lambda: server.scheduler() == (2, 0))
                os.kill(victim, signal.SIGKILL)
                told += "".join(parts)
            assert json.loads(raw_events(told)[-1])["error"]["type"] == "server_error"
            failed = plain.result(DEADLINE)
            assert failed.status_code == 500
            assert set(failed.json()["error"]) == {"message", "type", "param", "code"}
        assert server.wait() == 1
        assert role in server.log


def test_b78_a_port_in_use_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            [sys.executable, "-m", "jackfield", "serve", "--port", port, *SIMULATED],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    assert ended.returncode == 1
    assert f"cannot listen on http://127.0.0.1:{port}" in ended.stderr
    assert "--port" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert ended.stdout == ""


def test_b78_two_sockets_on_one_port_are_refused_before_either_serves() -> None:
    with bind("127.0.0.1", 0) as first, pytest.raises(CannotListen, match="another process"):
        bind("127.0.0.1", first.getsockname()[1])


def test_b78_ipv6_has_brackets() -> None:
    assert url("::1", 7) == "http://[::1]:7"
    with serving(*SIMULATED, "--host", "::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert server.get("/health").status_code == 200


def test_an_address_that_is_not_this_machines() -> None:
    with pytest.raises(CannotListen, match="listen on http"):
        bind("192.0.2.1", 0)
    with pytest.raises(CannotListen, match="no-such-host"):
        bind("no-such-host.invalid", 0)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--cache-policy", "radiks"), "radix"),
        (("--max-request-byts", "5"), "--max-request-bytes"),
        (("--api-key", ""), "--api-key"),
        (("--worker", "simulated", "--option", "worker.simulated.sript=x"), "script"),
    ],
)
def test_a_refused_configuration_is_exit_2(flags: tuple[str, ...], named: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "jackfield", "serve", "--port", "0", *flags],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ended.returncode == 2, ended.stderr
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_the_main_process_has_no_torch() -> None:
    with serving("--check-invariants", "step", "--worker", "simulated") as server:
        main = psutil.Process(server.process.pid)
        assert not [mapped.path for mapped in main.memory_maps() if "torch" in mapped.path]
        # Its one listening socket is the public one.
        listening = [c for c in main.net_connections() if c.status == psutil.CONN_LISTEN]
        assert len(listening) == 1
        assert listening[0].laddr.ip == "127.0.0.1"


# in this process: a launch that the test holds up


class Starting:
    """A server whose launch waits for the test, and then raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.let_go = threading.Event()
        self.lines: list[str] = []
        self.server = module.Server(ServerArgs(), self._launch, announce=self.lines.append)

    def _launch(self) -> Any:
        self.let_go.wait(DEADLINE)
        raise self.error


async def test_while_it_starts_it_listens_and_says_so() -> None:
    starting = Starting(ConfigurationError("the model is too small"))
    with bind("127.0.0.1", 0) as sock:
        where = url("127.0.0.1", sock.getsockname()[1])
        run = asyncio.create_task(starting.server.run(sock))
        try:
            async with httpx.AsyncClient(base_url=where, **PLAIN) as client:
                for path in ("/health", "/ready", "/v1/models", "/server_info"):
                    told = await client.get(path)
                    assert told.status_code == 503, path
                    assert "starting" in told.json()["error"]["message"]
                assert (await client.get("/ping")).status_code == 200
                refused = await client.post("/v1/chat/completions", json={"messages": []})
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "starting")
        finally:
            starting.let_go.set()
        with pytest.raises(ConfigurationError, match="too small"):
            await run
    assert starting.lines == []


async def test_a_replica_that_does_not_end_in_order_shows_in_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    args = ServerArgs(worker="simulated", topology="inline", skip_tokenizer_init=True, skip_server_warmup=True)
    close = InlineRuntime.close

    def fail(runtime: InlineRuntime) -> None:
        close(runtime)
        raise OSError("no space left")

    monkeypatch.setattr(InlineRuntime, "close", fail)
    up = asyncio.Event()
    server = module.Server(args, lambda: launch_inline(args), announce=lambda line: up.set())
    with bind("127.0.0.1", 0) as sock:
        run = asyncio.create_task(server.run(sock))
        await asyncio.wait({run, asyncio.create_task(up.wait())}, return_when=asyncio.FIRST_COMPLETED)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await run == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_b78_a_signal_while_the_children_start_leaves_nothing(number: int) -> None:
    server = Server(*SIMULATED)
    try:
        main = psutil.Process(server.process.pid)
        until(lambda: len(main.children()) == 2)
        children = main.children()
        server.signal(number)
        assert server.process.wait(DEADLINE) == 0, server.log
        assert run_directories(main.pid) == []
        assert not any(child.is_running() for child in children)
        assert "Traceback" not in server.log
    finally:
        server.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_starts_ends_it_at_once(number: int, tmp_path: Any) -> None:
    """The launch hangs on a model file that is a pipe; nobody could wait for it."""
    fifo = tmp_path / "model.gguf"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "jackfield", "serve", "--port", "0", "--model-path", str(fifo)],
        stderr=subprocess.DEVNULL,
    )
    try:

        def starting() -> bool:
            """The port is not told before it is up; one that was free a moment ago may be another's by now."""
            if process.poll() is not None:
                return True
            try:
                (port,) = [
                    c.laddr.port
                    for c in psutil.Process(process.pid).net_connections()
                    if c.status == psutil.CONN_LISTEN
                ]
                return httpx.get(f"http://127.0.0.1:{port}/health", **PLAIN).status_code == 503
            except (ValueError, psutil.Error, httpx.TransportError):
                return False

        until(starting)
        if process.poll() is None:
            process.send_signal(number)
            assert process.wait(DEADLINE) == 0
        else:
            pytest.fail(f"a pipe is taken for a model: exit {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_the_request_log_tells_of_clients_that_went_away() -> None:
    flags = ("--log-requests", "--log-requests-level", "0", "--log-requests-format", "json", "--log-level", "error")
    with serving(*SIMULATED, *SLOW, "--topology", "inline", *flags, check=False) as server:
        with server.client() as client, client.stream("POST", "/generate", json=body(4000)) as stream:
            next(stream.iter_bytes())

        def lines() -> list[dict[str, Any]]:
            return [json.loads(line) for line in server.log.splitlines()]

        until(lambda: any(line["path"] == "/generate" for line in lines()))
        (told,) = [line for line in lines() if line["path"] == "/generate"]
        assert (told["status"], told["client_gone"]) == (200, True)
        assert told["requests"][0]["completion_tokens"] >= 1
        until(lambda: server.scheduler() == (0, 0))
