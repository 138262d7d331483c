"""The pages on scheduling: their blocks are run, and what they print is what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
POLICY = (DOCS / "write-a-policy.md").read_text()
STEP = (DOCS / "scheduling.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """Fenced blocks of a language, those of named files left out."""
    unnamed = re.sub(r"^`[\w/.-]+`\n\n```\w+\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```", unnamed, flags=re.MULTILINE | re.DOTALL)


def files(text: str) -> dict[str, str]:
    return dict(re.findall(r"^`([\w/.-]+)`\n\n```\w+\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, cwd=folder)


def test_the_steps_of_the_example_are_what_the_page_says(tmp_path: Path) -> None:
    code, told = blocks(STEP, "python"), blocks(STEP, "text")
    assert len(code) == len(told) == 2
    done = run(tmp_path, "-c", "".join(code))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(told)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, installed into a folder of its own."""
    project = tmp_path_factory.mktemp("least-served")
    made = files(POLICY)
    one_file = {name: made.pop(name) for name in ("tenant_cap.py", "test_tenant_cap.py")}
    assert set(made) == {"pyproject.toml", "least_served/plugin.toml", "least_served/policy.py", "test_policy.py"}
    (project / "least_served").mkdir()
    for name, content in made.items():
        (project / name).write_text(content)
    (project / "least_served" / "__init__.py").write_text("")
    folder = tmp_path_factory.mktemp("site")
    pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(folder),
        str(project),
    ]
    subprocess.run([sys.executable, *pip], check=True, capture_output=True, text=True)
    for name, content in {"test_policy.py": made["test_policy.py"], **one_file}.items():
        (folder / name).write_text(content)
    return folder


def test_the_policies_own_tests_pass(site: Path) -> None:
    done = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_policy.py", "test_tenant_cap.py")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.model
def test_the_policy_serves_in_the_order_that_the_page_prints(site: Path, embedded_model: Path) -> None:
    (code,), (told,) = blocks(POLICY, "python"), blocks(POLICY, "text")
    done = run(site, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == told


@pytest.mark.slow
@pytest.mark.model
def test_the_policy_serves_on_the_command_line(site: Path, embedded_model: Path) -> None:
    commands = [line.strip() for line in POLICY.splitlines() if line.startswith("    .venv/bin/jackfield")]
    generate, explain = (line.replace('"', "").split()[1:] for line in commands[:2])
    done = run(site, "-m", "jackfield", *generate, "--max-new-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert "schedule_policy=least-served" in done.stderr
    assert "least-served" in run(site, "-m", "jackfield", *explain).stdout
