"""Strangers' packages behind HTTP: the real model, from a stack file, in processes, with a sink that sends what it is told."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.third_party.environment import Environment

pytestmark = [pytest.mark.slow, pytest.mark.model]

STACK = """
dtype = "float32"
page_size = 16
max_total_tokens = 8192
topology = "processes"

[stack]
attention = "{attention}"
cache_policy = "radix"
schedule_policy = "least-work"
grammar_backend = "choice"
reasoning_parser = "tag"
metrics = [{{ plugin = "statsd", options = {{ port = {port} }} }}]

[options."schedule_policy.least-work"]
patience = 10.0
"""


class Daemon:
    """A StatsD daemon that keeps every line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while datagram := self._socket.recv(65535):
            self.lines += datagram.decode().splitlines()

    def close(self) -> None:
        """Everything sent before this call has been kept when it returns."""
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def total(self, name: str) -> float:
        """Sum of the increases of one counter."""
        return sum(float(line.split(":", 1)[1].split("|")[0]) for line in self.lines if line.startswith(f"{name}:"))


@contextlib.contextmanager
def served(environment: Environment, folder: Path, attention: str, port: int) -> Iterator[str]:
    """The address of a server, which must end in order and leave no process behind."""
    (folder / "stack.toml").write_text(STACK.format(attention=attention, port=port))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [environment.python, "-m", "jackfield", "serve", "--port", "0", "--stack", "stack.toml"],
            cwd=folder,
            env=environment.variables(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    family: list[psutil.Process] = []
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " is served at http://" in line, (folder / "log").read_text()
        family = psutil.Process(process.pid).children(recursive=True)
        yield line.split(" at ")[1].split()[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (folder / "log").read_text()
        assert psutil.wait_procs(family, 30)[1] == []
    finally:
        for left in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def ask(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


@pytest.mark.goal_row(24, 30)
def test_strangers_serve_over_http(environment: Environment, embedded_model: Path, tmp_path: Path) -> None:
    """The same text as with our own attention; the server says who serves; the sink hears of every request."""
    prompts = ["The capital of France is", "One, two, three,", "The sea is " * 20]
    sampling = {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}
    chat = {"messages": [{"role": "user", "content": "Name a river."}], "temperature": 0, "max_tokens": 12}
    colour = {"text": "The sky is", "sampling_params": {"json_schema": '{"enum": ["blue", "green"]}', "temperature": 0}}
    texts: dict[str, Any] = {}
    for attention in ("torch", "columnar"):
        daemon = Daemon()
        try:
            with served(environment, tmp_path, attention, daemon.port) as url:
                answers = ask(url, "/generate", {"text": prompts, "sampling_params": sampling})
                spoken = ask(url, "/v1/chat/completions", chat)
                bound = ask(url, "/generate", colour)
                texts[attention] = [
                    [answer["output_ids"] for answer in answers],
                    spoken["choices"][0]["message"]["content"],
                    json.loads(bound["text"]),
                ]
                plugins = ask(url, "/plugins")["stack"]["plugins"]
                info = ask(url, "/server_info")
        finally:
            daemon.close()
        serving = {row["kind"]: (row["distribution"], row["version"]) for row in plugins}
        assert serving["schedule_policy"] == ("least-work-policy", "1.2.0")
        assert serving["metrics"] == ("statsd-sink", "0.9")
        assert (serving["grammar"], serving["parser"]) == (("choice-grammar", "1.0"), ("tag-parser", "0.3"))
        assert texts[attention][-1] in ("blue", "green")
        assert [row["options"]["patience"] for row in plugins if row["kind"] == "schedule_policy"] == [10.0]
        assert sorted(row["role"] for row in info["processes"]) == ["detokenizer", "main", "scheduler"]
        assert daemon.total("jackfield_num_finished_requests_total") == len(prompts) + 2
        assert daemon.total("jackfield_generation_tokens_total") == sum(
            [answer["meta_info"]["completion_tokens"] for answer in [*answers, bound]],
            spoken["usage"]["completion_tokens"],
        )
    assert serving["attention"] == ("columnar-attention", "0.4.1")
    assert texts["columnar"] == texts["torch"]
