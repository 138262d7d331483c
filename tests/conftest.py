"""Shared by the tests of packaging and of strangers' packages: the wheels of all distributions of the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

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
