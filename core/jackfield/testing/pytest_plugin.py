"""The pytest plugin of the core's wheel: `--conformance-json FILE` writes what the conformance suites of a run found.

Imports nothing but pytest, so that it costs nothing where it is not used. Each report of a check carries what it needs as a
user property, which reaches the main process of a distributed run too.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SCHEMA_VERSION = 1
PROPERTY = "jackfield conformance"
_SKIPS = ("not claimed", "not here", "cannot run")
_RANK = ("failed", "cannot run", "passed", "not here", "not claimed")

# Here and not in a hook: before any conftest imports them, so that failed assertions show their values.
pytest.register_assert_rewrite("jackfield.testing.conformance")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("jackfield")
    group.addoption(
        "--conformance-json", type=Path, metavar="FILE", help="write what Jackfield's conformance suites found, as JSON"
    )


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--conformance-json")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ConformanceReport(file.absolute()), "jackfield-conformance-report")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    suite = getattr(item, "cls", None)
    if isinstance(item, pytest.Function) and suite is not None and getattr(suite, "jackfield_conformance", False):
        if call.when != "call" and report.outcome == "passed":
            return report
        document = (item.function.__doc__ or "").strip()
        name = item.originalname
        report.user_properties.append(
            (
                PROPERTY,
                {
                    "identity": suite.identity(),
                    "check": name.removeprefix("test_"),
                    "case": item.name.removeprefix(name).strip("[]"),
                    "proves": " ".join(document.partition("\n\n")[0].split()),
                    **_outcome(report, call),
                },
            )
        )
    return report


def _outcome(report: pytest.TestReport, call: pytest.CallInfo[None]) -> dict[str, Any]:
    if report.skipped:
        words = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext
        words = words.removeprefix("Skipped: ")
        outcome, _, why = words.partition(": ")
        return {"outcome": outcome, "detail": why} if outcome in _SKIPS else {"outcome": "not here", "detail": words}
    if report.passed:
        return {"outcome": "passed", "detail": ""}
    assert call.excinfo is not None
    error = call.excinfo.value
    # Told by name: importing the class would be the one import of the core in every pytest run.
    refused = type(error).__name__ == "ConfigurationError" and call.when == "setup"
    lines = [*str(error).splitlines(), *getattr(error, "__notes__", ())] or [""]
    kind = "" if isinstance(error, AssertionError) or refused else f"{type(error).__name__}: "
    return {
        "outcome": "cannot run" if refused else "failed",
        "detail": kind + "\n".join(lines),
        "traceback": report.longreprtext,
    }


class ConformanceReport:
    """Collects the reports of a run and writes them by plugin."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._plugins: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, found in report.user_properties:
            if name != PROPERTY or not isinstance(found, dict):
                continue
            suite = report.nodeid.rpartition("::")[0]
            plugin = self._plugins.setdefault(suite, {**found["identity"], "seconds": 0.0, "checks": []})
            measured = [value for key, value in report.user_properties if key == "measured"]
            case = {key: value for key, value in found.items() if key != "identity"}
            plugin["checks"].append(case | {"seconds": round(report.duration, 4), "measured": measured})
            plugin["seconds"] = round(plugin["seconds"] + report.duration, 4)

    def pytest_sessionfinish(self) -> None:
        for plugin in self._plugins.values():
            outcomes = {check["outcome"] for check in plugin["checks"]}
            plugin["outcome"] = next(outcome for outcome in _RANK if outcome in outcomes)
        document = {"schema_version": SCHEMA_VERSION, "plugins": list(self._plugins.values())}
        self._file.write_text(json.dumps(document, indent=2, default=str) + "\n", encoding="utf-8")
