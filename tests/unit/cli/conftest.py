from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.unit.stack.distributions import Site


@pytest.fixture
def live_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site-packages folder from which this process imports."""
    site = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(site.folder))
    importlib.invalidate_caches()
    return site
