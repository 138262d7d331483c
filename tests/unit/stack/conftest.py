from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.stack.distributions import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site-packages folder that is not on this process's path."""
    return Site(tmp_path / "site")
