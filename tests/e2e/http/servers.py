"""Real server processes for the tests: started on a free port, ended by a signal, reaped whatever happens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

DEADLINE = 120.0
"""Seconds after which a test gives up on a condition. Generous: it is no measurement."""

PLAIN: dict[str, Any] = {"timeout": DEADLINE, "trust_env": False, "verify": False}
"""For a client of httpx: no proxy of the environment may stand between a test and its own server, and no certificates are read
for a server without any (that takes longer than most requests)."""

SIMULATED = ("--worker", "simulated", "--check-invariants", "step", "--skip-server-warmup")
SLOW = ("--option", "worker.simulated.realtime=true", "--option", "worker.simulated.base_us=20000")
"""A step takes 20 ms, so that a client can act while its request runs."""

LONG = {"max_new_tokens": 4000, "ignore_eos": True, "temperature": 0}


def script(*answers: Any) -> tuple[str, ...]:
    """What the requests answer, one after the other (the case file's FORCE)."""
    return ("--option", f"worker.simulated.script={json.dumps(list(answers), ensure_ascii=False)}")


class Server:
    def __init__(self, *flags: str, env: dict[str, str] | None = None) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)  # noqa: SIM115 - lives as the server does
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jackfield", "serve", "--port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )
        self.line = ""
        self.url = ""
        self._family: list[psutil.Process] = []

    def wait_until_up(self) -> Server:
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"http://\S+", self.line)
        assert found is not None, self.line + self.log
        self.url = found.group()
        self._family = psutil.Process(self.process.pid).children(recursive=True)
        return self

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, **PLAIN, **options)

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, **PLAIN, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.get(path, **options)

    def generate(self, **body: Any) -> Any:
        answer = self.post("/generate", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def state(self) -> Any:
        return self.get("/server_info").json()

    def scheduler(self) -> tuple[int, int]:
        """Running and waiting."""
        numbers = self.state()["scheduler"]
        return numbers["running"], numbers["waiting"]

    def pid(self, role: str) -> int:
        return next(int(process["pid"]) for process in self.state()["processes"] if process["role"] == role)

    def assert_alive(self) -> None:
        """The case file's ALIVE: idle, every slot accounted for, no lease held, and it still answers."""
        until(lambda: self.scheduler() == (0, 0))
        kv = self.state()["kv"]
        assert kv["free"] + kv["evictable"] == kv["total"], kv
        assert (kv["protected"], kv["pending"], kv["held"]) == (0, 0, 0), kv
        answer = self.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 1, "temperature": 0})
        assert answer["meta_info"]["finish_reason"]["type"] in ("length", "stop")
        assert self.get("/health").status_code == 200

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code; afterwards nothing of the server may be left."""
        code = self.process.wait(DEADLINE)
        until(lambda: not any(_lives(process) for process in self._family))
        return code

    def close(self) -> None:
        try:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait(DEADLINE)
            for process in self._family:
                if _lives(process):
                    process.kill()
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._log.close()
            os.unlink(self._log.name)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, however long it takes on a busy machine, but not for ever."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


@contextmanager
def serving(*flags: str, env: dict[str, str] | None = None, check: bool = True) -> Iterator[Server]:
    """A server that is up. check: it must end in order, alive until then, and log no error."""
    server = Server(*flags, env=env)
    try:
        yield server.wait_until_up()
        if check:
            server.assert_alive()
            server.signal(signal.SIGTERM)
            assert server.wait() == 0, server.log
            assert "ERROR" not in server.log
            assert "Traceback" not in server.log
    finally:
        server.close()


def events(response: httpx.Response) -> list[Any]:
    """The events of a stream; it must end with [DONE], once."""
    found = list(raw_events(response.text))
    assert found[-1] == "[DONE]", found[-1:]
    assert found.count("[DONE]") == 1
    return [json.loads(data) for data in found[:-1]]


def raw_events(text: str) -> Sequence[str]:
    blocks = text.split("\n\n")
    assert blocks[-1] == ""
    for block in blocks[:-1]:
        assert block.startswith("data: "), block
        assert "\n" not in block, block
    return [block.removeprefix("data: ") for block in blocks[:-1]]
