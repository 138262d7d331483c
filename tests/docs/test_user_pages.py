"""The pages for operators and plugin authors: their examples are run, their flags, routes and metrics exist."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


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


PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_flag_that_a_page_names_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"--" + name.replace("_", "-") for name in ServerArgs.model_fields}
    for command in ("generate", "explain"):
        with contextlib.suppress(SystemExit):
            main([command, "--help"])
        known |= set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
    elsewhere = {"--json", "--no-deps"}  # of `plugins list`, and of pip
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", page.read_text()))
    assert named <= known | elsewhere, named - known - elsewhere
