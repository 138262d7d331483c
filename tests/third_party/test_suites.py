"""Strangers' own tests, the contract's conformance suites among them, where the strangers are installed from wheels.

They run in two processes side by side, one of which never imports torch: half of the time of so small tests is imports.
`make test-plugins` runs this file alone.
"""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.third_party.environment import STRANGERS, Environment
from tests.unit.authoring.packages import WITH_TORCH

pytestmark = pytest.mark.slow

RUN = """
import pytest, sys
code = pytest.main(sys.argv[2:])
if sys.argv[1] == "no torch" and "torch" in sys.modules:
    sys.exit("torch was imported by the tests of kinds that need none")
sys.exit(code)
"""


@dataclass
class Outcome:
    """What became of one stranger's tests: the names of those that passed, and what the others said."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def needs_torch(project: Path) -> bool:
    groups = tomllib.loads((project / "pyproject.toml").read_text())["project"]["entry-points"]
    return any(group.removeprefix("jackfield.") in WITH_TORCH for group in groups)


def start(environment: Environment, folder: Path, names: list[str], *, torch: bool) -> subprocess.Popen[str]:
    """pytest over copies of their tests, outside of this checkout."""
    for name in names:
        shutil.copytree(STRANGERS[name] / "tests", folder / name / "tests")
    options = ["-q", "--import-mode=importlib", "--rootdir", ".", "--junitxml", "outcome.xml", "-p", "no:cacheprovider"]
    return subprocess.Popen(
        [environment.python, "-c", RUN, "torch" if torch else "no torch", *options, *names],
        cwd=folder,
        env=environment.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def outcomes(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """By stranger. A run that ends without a report, or that imports torch where it may not, fails here."""
    runs = []
    for torch in (True, False):
        folder = tmp_path_factory.mktemp("torch" if torch else "plain")
        names = [name for name, project in STRANGERS.items() if needs_torch(project) is torch]
        runs.append((folder, start(environment, folder, names, torch=torch)))
    found: dict[str, Outcome] = defaultdict(Outcome)
    for folder, run in runs:
        told, _ = run.communicate()
        assert run.returncode in (0, 1), told
        assert "torch was imported" not in told, told
        for case in ElementTree.parse(folder / "outcome.xml").iter("testcase"):
            outcome = found[case.attrib["classname"].partition(".")[0]]
            name = f"{case.attrib['classname']}.{case.attrib['name']}"
            wrong = [child for child in case if child.tag in ("failure", "error")]
            if wrong:
                outcome.failed[name] = "\n".join(child.text or child.attrib.get("message", "") for child in wrong)
            elif case.find("skipped") is None:
                outcome.passed.append(name)
    return found


@pytest.mark.goal_row(1, 36, 37)
@pytest.mark.parametrize("name", STRANGERS)
def test_their_own_tests_pass(outcomes: Mapping[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert not outcome.failed, "\n\n".join(f"{test}\n{text}" for test, text in outcome.failed.items())
    suite = [test for test in outcome.passed if ".test_conformance." in test]
    assert len(suite) >= 5, suite
    assert len(outcome.passed) > len(suite)  # it has tests of its own too
