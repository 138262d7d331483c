"""The strangers' own tests run where the strangers are installed (`test_installed.py`), never in this checkout's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.third_party.environment import STRANGERS, Environment, build_wheel, make_environment

collect_ignore_glob = ["*/*"]


@pytest.fixture(scope="session")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The core, all of our plugins and all strangers, from wheels."""
    out = tmp_path_factory.mktemp("strangers")
    theirs = [build_wheel(project, out / name) for name, project in STRANGERS.items()]
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", [*wheels.values(), *theirs])
