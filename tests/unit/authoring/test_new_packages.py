"""What `jackfield new` writes works as it is: every kind is found, healthy, clean, and passes its own tests."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.claims import KNOWN
from tests.unit.authoring.packages import TORCH_FREE, WITH_TORCH, Installed, write_all

# Their own tests, the conformance suites among them, in one process for many packages: half of the time is imports.
RUN_TESTS = """
import json, pytest
class Count:
    passed = 0
    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed
count = Count()
options = ["-q", "--import-mode=importlib", "-W", "error", "--rootdir", ".", "-p", "no:cacheprovider", "-p", "no:asyncio"]
code = pytest.main([*options, *sys.argv[1:]], plugins=[count])
print()
print(json.dumps({"code": int(code), "passed": count.passed, "torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return write_all(tmp_path_factory.mktemp("new"))


def test_every_kind_has_a_template() -> None:
    assert set(TORCH_FREE) | set(WITH_TORCH) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.goal_row(39)
def test_a_package_is_whole(installed: Installed, kind: str) -> None:
    new = installed.new[kind]
    files = {str(path.relative_to(new.directory)) for path in new.directory.rglob("*") if path.is_file()}
    assert files >= {"pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/ci.yml"}
    assert files >= {f"{new.package}/{name}" for name in ("__init__.py", "plugin.py", "plugin.toml", "py.typed")}
    texts = {name: (new.directory / name).read_text() for name in files}
    assert all(text.endswith("\n") for name, text in texts.items() if text)
    assert not [name for name, text in texts.items() if "{{" in text or "{%" in text]
    for name in files:
        if name.endswith(".py"):
            ast.parse(texts[name])
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    assert project["authors"] == [{"name": 'Ann "A" Author'}]
    assert project["entry-points"] == {f"jackfield.{kind}": {"my-own": f"{new.package}.plugin"}}
    assert project["optional-dependencies"]["test"] == ["jackfield[testing]"]
    (row,) = tomllib.loads(texts[f"{new.package}/plugin.toml"])["plugin"]
    assert row["contract"] == {kind: KINDS[kind].contract_version}
    workflow = texts[".github/workflows/ci.yml"]
    assert all(step in workflow for step in ("ruff check", "mypy", "pytest", "build --wheel", "jackfield conformance"))


def test_an_attention_package_names_every_feature_that_it_could_have(installed: Installed) -> None:
    new = installed.new["attention"]
    (manifest,) = new.directory.glob("*/plugin.toml")
    comment = manifest.read_text()
    assert [name for name in KNOWN["attention"] if f'"{name}"' not in comment and f'"{name}:' not in comment] == []


@pytest.mark.goal_row(1)
def test_every_package_is_found_and_healthy(installed: Installed) -> None:
    code = """
import json
from jackfield.stack.discovery.scan import discover
rows = {row.kind: [row.status.value, row.problem, row.distribution] for row in discover() if row.name == "my-own"}
heavy = {"torch", "numpy.linalg"} & set(sys.modules) - {"numpy.linalg"}
print(json.dumps([rows, sorted(heavy)]))
"""
    done = installed.run(KINDS, code)
    assert done.returncode == 0, done.stderr
    rows, heavy = json.loads(done.stdout)
    assert rows == {kind: ["ok", "", new.distribution] for kind, new in installed.new.items()}
    assert heavy == []


def test_every_package_is_clean(installed: Installed) -> None:
    """As its own CI asks: the linter and the formatter, with the settings of its pyproject.toml."""
    for command in (("check",), ("format", "--check")):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--no-cache",
            *(str(n.directory) for n in installed.new.values()),
        ]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def run_tests(installed: Installed, kinds: tuple[str, ...]) -> tuple[int, bool]:
    """How many passed, and whether torch was imported. All must."""
    tests = [str(installed.new[kind].directory / "tests") for kind in kinds]
    done = installed.run(kinds, RUN_TESTS, *tests)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["code"] == 0, done.stdout + done.stderr
    return told["passed"], told["torch"]


@pytest.mark.goal_row(36, 39)
def test_kinds_without_torch_pass_their_own_tests_without_torch(installed: Installed) -> None:
    passed, torch = run_tests(installed, TORCH_FREE)
    assert passed >= 2 * len(TORCH_FREE)
    assert not torch


@pytest.mark.goal_row(39)
def test_kinds_with_torch_pass_their_own_tests(installed: Installed) -> None:
    passed, _ = run_tests(installed, WITH_TORCH)
    assert passed >= 2 * len(WITH_TORCH)


def test_two_packages_live_in_one_environment(installed: Installed) -> None:
    """Nothing that they have in common is in common: packages and classes are named after the plugin."""
    assert len({new.package for new in installed.new.values()}) == len(KINDS)
    assert len({Path(new.directory) for new in installed.new.values()}) == len(KINDS)
