"""One real server with the embedded model for all tests of this folder: a case of the case file counts as passed only there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.http.servers import Server, serving

FLAGS = ("--dtype", "float32", "--max-total-tokens", "4096", "--check-invariants", "step", "--metrics", "prometheus")
PARSERS = ("--tool-call-parser", "hermes", "--reasoning-parser", "think")
"""The model has been trained on neither; a grammar makes it write them."""


@pytest.fixture(scope="session")
def real() -> Iterator[Server]:
    """It must be alive at its end, with an empty table, an exact pool and no error in its log."""
    with serving(*FLAGS, *PARSERS) as server:
        yield server
