"""Shared by tests of several folders: the wheels of all distributions of the repository, and a folder of installed plugins."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.unit.stack.distributions import Site

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder of a distribution -> its wheel; the core's under ".". Built once a run: not to be changed."""
    from tests.third_party.environment import build_wheel

    places = [
        ".",
        *sorted(file.parent.relative_to(ROOT).as_posix() for file in ROOT.glob("plugins/*/*/pyproject.toml")),
    ]
    out = tmp_path_factory.mktemp("wheels")
    return {place: build_wheel(ROOT / place, out / str(number)) for number, place in enumerate(places)}


@pytest.fixture
def live_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site-packages folder from which this process imports."""
    site = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    importlib.invalidate_caches()
    return site
