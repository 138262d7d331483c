"""The pages for operators and plugin authors: their examples are run, their flags, routes and metrics exist."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.cli import main
from jackfield.entrypoints.throughput import ThroughputLog
from jackfield.ipc.messages import SchedulerReport

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ADDRESS = "http://127.0.0.1:30000"


def named_blocks(page: str) -> dict[str, str]:
    """File name -> content: a paragraph that is only a name in backquotes, then a fenced block."""
    text = (DOCS / page).read_text()
    return dict(re.findall(r"^`([\w/.-]+)`\n\n```\w+\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))


def test_the_authors_example_passes(tmp_path: Path) -> None:
    files = named_blocks("plugin-authors.md")
    assert set(files) == {"test_in_a_scheduler.py"}
    (tmp_path / "test_in_a_scheduler.py").write_text(files["test_in_a_scheduler.py"])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_in_a_scheduler.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


BENCH = ("bench offline", "bench serve", "bench compare")
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_flag_that_a_page_names_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"--" + name.replace("_", "-") for name in ServerArgs.model_fields}
    for command in ("generate", "chat", "explain", "why", "lock", "new", "conformance", "plugins list", *BENCH):
        with contextlib.suppress(SystemExit):
            main([*command.split(), "--help"])
        known |= set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
    # Of `plugins list`, of pip (two), of pytest, and of benchmarks/gpu/run.py.
    elsewhere = {"--json", "--no-deps", "--no-build-isolation", "--conformance-json", "--tiny"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", page.read_text()))
    assert named <= known | elsewhere, named - known - elsewhere


def commands(page: str, program: str) -> list[str]:
    """The shell commands of a page's indented blocks that begin with `program`, continued lines joined."""
    text = (DOCS / page).read_text().replace("\\\n", " ")
    return [line.strip() for line in re.findall(r"^    (.*)$", text, flags=re.MULTILINE) if line.startswith(program)]


@dataclass
class Running:
    """A server of this test's own; `shell` runs a page's command against it."""

    url: str
    keys: dict[str, str]
    folder: Path

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        assert ADDRESS in command
        # What an option would say on each line: errors count as failures, and say why.
        (self.folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\nmax-time = 120\n")
        return subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, self.url)],
            env={**os.environ, **self.keys, "CURL_HOME": str(self.folder)},
            capture_output=True,
            text=True,
        )


@contextlib.contextmanager
def serve(folder: Path, *flags: str, **keys: str) -> Iterator[Running]:
    """The real command on a free port, over the simulated worker. It must end in order."""
    command = ["-m", "jackfield", "serve", "--port", "0", "--worker", "simulated"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")}
    process = subprocess.Popen(
        [sys.executable, *command, "--option", "worker.simulated.script=Good day", *flags],
        env={**variables, **keys, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    assert process.stderr is not None
    assert process.stdout is not None
    listener = threading.Thread(target=said.extend, args=(process.stderr,))
    listener.start()
    try:
        line = process.stdout.readline()
        assert line.startswith("jackfield: SmolLM2-135M-Instruct is served at http://127.0.0.1:"), "".join(said)
        yield Running(line.split(" at ")[1].split()[0], keys, folder)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "".join(said)
    finally:
        process.kill()
        process.wait()
        listener.join()
        process.stdout.close()
        process.stderr.close()


SERVERS = {
    "serving.md": ((), {}),
    "security.md": ((), {"JACKFIELD_API_KEY": "doc-key", "JACKFIELD_ADMIN_API_KEY": "doc-admin-key"}),
    "observability.md": (
        ("--metrics", "prometheus", "--observer", "jsonl", "--option", "observer.jsonl.directory=./logs"),
        {},
    ),
}


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("page", SERVERS)
def test_every_request_of_a_page_is_answered(page: str, embedded_model: Path, tmp_path: Path) -> None:
    assert shutil.which("curl"), "the pages' examples are for curl"
    flags, keys = SERVERS[page]
    asked = commands(page, "curl")
    assert asked
    with serve(tmp_path, *flags, **keys) as server:
        for command in asked:
            done = server.shell(command)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        if page == "serving.md":
            assert "Good day" in server.shell(asked[0]).stdout
            assert "data: [DONE]" in server.shell(asked[1]).stdout
        if page == "security.md":
            refused = server.shell(f"curl {ADDRESS}/v1/models")
            assert refused.returncode != 0
            assert "invalid_api_key" in refused.stdout
            assert "admin_key_required" in server.shell(asked[1].replace("ADMIN_API_KEY", "API_KEY")).stdout
        if page == "observability.md":
            named = set(re.findall(r"`(jackfield_\w+)`", (DOCS / page).read_text()))
            shown = server.shell(asked[0]).stdout
            assert len(named) > 10
            assert {name for name in named if f"# TYPE {name} " not in shown} == set()
            assert (tmp_path / "logs" / "requests.jsonl").exists()
            assert (tmp_path / "logs" / "steps.jsonl").exists()


@pytest.mark.slow
@pytest.mark.model
def test_the_openai_client_works_as_the_page_says(embedded_model: Path, tmp_path: Path) -> None:
    page = (DOCS / "serving.md").read_text()
    (example,) = re.findall(r"^```python\n(from openai.*?)^```", page, re.MULTILINE | re.DOTALL)
    with serve(tmp_path) as server:
        done = subprocess.run(
            [sys.executable, "-c", example.replace(ADDRESS, server.url)], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Good day\nGood day"


@pytest.mark.parametrize("page", SERVERS)
def test_every_start_of_a_page_is_one_that_can_be(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a page starts resolves as it stands, with a model and a stack file of the reader's own left out."""
    starts = [line.split("jackfield serve", 1)[1] for line in commands(page, "") if "jackfield serve" in line]
    assert starts
    for flags in starts:
        words = re.sub(r"--(model-path|stack) \S+", "", flags.partition("#")[0]).split()
        assert main(["explain", "--worker", "simulated", *words]) == 0, capsys.readouterr().err


def test_the_throughput_line_is_the_real_one(caplog: pytest.LogCaptureFixture) -> None:
    """Words and precision; the numbers are an example's."""
    report = SchedulerReport(
        steps=1,
        seconds=1.0,
        running=12,
        waiting=3,
        prefill_tokens=1834,
        cached_tokens=3000,
        decode_tokens=412,
        kv_total=100,
        kv_free=59,
        kv_evictable=0,
        kv_protected=41,
        kv_pending=0,
        kv_held=0,
    )
    caplog.set_level("INFO", logger="jackfield.throughput")
    ThroughputLog(1.0).on_report(report)
    (said,) = caplog.messages
    (shown,) = re.findall(r"^    (running .*)$", (DOCS / "observability.md").read_text(), re.MULTILINE)
    assert re.sub(r"\d+", "0", shown) == re.sub(r"\d+", "0", said)
