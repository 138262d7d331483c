"""How the tests are dealt to pytest-xdist's workers (`make test`): whole files, in the order in which they are collected.

A file stays with one worker, so that its module fixtures (servers, engines, loaded models) are made once. Files that share
something costly of the whole session stay together too. The end-to-end files, which are the long ones, are collected
first, so that short files level the workers at the end. Knows nothing of what the tests do.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = {
    "tests/packaging/": "wheels",
    "tests/third_party/": "wheels",
    "tests/e2e/test_reference.py": "reference_model",
    "tests/e2e/test_stacks.py": "reference_model",
    "plugins/models/llama/tests/test_llama_embedded.py": "reference_model",
    "tests/e2e/real/": "real",
    "tests/e2e/clients/": "clients",
}
"""Beginning of a test's id -> the name of its unit of work, where a session fixture is too costly to be made twice."""


def unit_of(nodeid: str) -> str:
    """The unit of work of a test: its file, or what that is counted to."""
    return next((unit for start, unit in TOGETHER.items() if nodeid.startswith(start)), nodeid.split("::", 1)[0])


class ByFile(LoadScopeScheduling):
    """xdist's `loadfile`, with units of several files, and without its reordering by the number of tests."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def sendable(value: Any) -> Any:
    """A report as a worker can send it, of plain types only; half a character, which tests of broken text leave in captured
    logs, is written out."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {sendable(key): sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [sendable(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if value is None or type(value) in (bool, int, float, bytes):
        return value
    return float(value) if isinstance(value, float) else str(value)
