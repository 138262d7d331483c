"""One quick server for the tests that need no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.http.servers import SIMULATED, Server, serving

TEXT = "Counting: 1, 2, 3. Then 😀 and \ufffd, all done!"


@pytest.fixture(scope="module")
def text() -> str:
    return TEXT


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Answers TEXT to everything, and then its end token."""
    import json

    with serving(
        *SIMULATED,
        "--option",
        f"worker.simulated.script={json.dumps(TEXT, ensure_ascii=False)}",
        "--max-total-tokens",
        "20000",
    ) as up:
        yield up
