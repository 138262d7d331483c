"""docs/benchmarking.md names every figure, workload and kind of failure that there is, and its commands can be read."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

from jackfield.entrypoints import cli
from jackfield.entrypoints.bench import client, load_figures, offline, streams
from jackfield.entrypoints.bench.apis import APIS
from jackfield.entrypoints.bench.load_figures import LATENCIES, RATES
from jackfield.entrypoints.bench.workloads import WORKLOADS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "benchmarking.md").read_text()
QUOTED = set(re.findall(r"`([^`]+)`", PAGE))


def test_every_figure_is_explained() -> None:
    figures = {*offline.FIGURES, *LATENCIES, *RATES, *(work.figure for work in WORKLOADS.values()), *APIS, *WORKLOADS}
    assert figures - QUOTED == set()


def test_what_is_told_beside_them_exists() -> None:
    code = "".join(map(inspect.getsource, (load_figures, offline)))
    for name in ("tokens_per_arrival", "counted_by", "late_ms", "cached_tokens"):
        assert name in QUOTED
        assert f'"{name}"' in code


def test_every_kind_of_failure_is_told() -> None:
    code = inspect.getsource(client) + inspect.getsource(streams)
    kinds = set(re.findall(r'failure = (?:failure or )?\("([a-z ]+)"', code)) | {"no answer", "broken off"}
    assert len(kinds) >= 7
    assert kinds - QUOTED == set()


def test_its_commands_can_be_read() -> None:
    lines = re.findall(r"^    jackfield (bench .*?)(?:  #.*)?$", PAGE, flags=re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        parser, commands = cli._parser(words)
        assert cli._parsed(parser, commands, words).action in line
