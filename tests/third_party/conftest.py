"""The strangers' own tests run where the strangers are installed (`test_installed.py`), never in this checkout's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.third_party.environment import ROOT, STRANGERS, Environment, build_wheel, make_environment

collect_ignore_glob = ["*/*"]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The core, all of our plugins and all strangers, from wheels."""
    projects = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml")), *STRANGERS.values()]
    wheels: list[Path] = []
    for number, project in enumerate(projects):
        wheels.append(build_wheel(project, tmp_path_factory.mktemp("wheels") / str(number)))
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", wheels)
