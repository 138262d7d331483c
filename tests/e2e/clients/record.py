"""A pytest plugin that writes what worked into docs/clients.json (`make clients`): `pytest -p tests.e2e.clients.record`.

A test says with `@pytest.mark.client("package", "feature")` which client it runs. Knows no client.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "clients.json"
_outcomes: dict[tuple[str, str], str] = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    told = yield
    report, mark = told.get_result(), item.get_closest_marker("client")
    if mark is None or (report.when != "call" and report.passed):
        return
    worked = {"passed": "works", "skipped": "not run"}.get(report.outcome, "fails")
    key = (str(mark.args[0]), str(mark.args[1]))
    # Of several tests of one feature the worst counts.
    _outcomes[key] = max(_outcomes.get(key, "works"), worked, key=("works", "not run", "fails").index)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not _outcomes:
        return
    found = [
        {"client": client, "version": _version(client), "feature": feature, "outcome": outcome}
        for (client, feature), outcome in sorted(_outcomes.items())
    ]
    RESULTS.write_text(json.dumps({"results": found}, indent=1, ensure_ascii=False) + "\n")


def _version(client: str) -> str | None:
    """None for what is no package: requests in the shape that a client sends."""
    try:
        return version(client)
    except PackageNotFoundError:
        return None
