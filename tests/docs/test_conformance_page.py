"""docs/conformance.md: its test file is collected and passes, and its tables are what the code says."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jackfield.entrypoints.cli import conformance as command
from jackfield.hookspecs.kinds import KINDS
from jackfield.testing import conformance

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "conformance.md").read_text()


def test_the_page_s_test_file_passes(tmp_path: Path) -> None:
    ((name, source),) = re.findall(r"^`(\S+)`\n\n```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / name).write_text(source)
    run = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", name]
    ended = subprocess.run([*run, "-k", "loads or budget"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_every_flag_stands_in_the_table() -> None:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    (sub,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    flags = {flag for action in sub.choices["conformance"]._actions for flag in action.option_strings} - {
        "-h",
        "--help",
    }
    assert flags == set(re.findall(r"^\| `(--[a-z]+)", PAGE, flags=re.MULTILINE))


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_suite_that_the_page_names(kind: str) -> None:
    suite = getattr(conformance, conformance.suite_name(kind))
    assert suite.kind == kind
    checks = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert all(check.__doc__ for check in checks), "a check without a word on what it proves"
    assert re.search(rf"^\| (?:[a-z_]+, )*{kind}(?:, [a-z_]+)* \|", PAGE, flags=re.MULTILINE)
