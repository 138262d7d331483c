"""The table of what works with what is about the plugins and stacks of today, and has nothing that does not work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from docs.compatibility import out_of_date, results

from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS
from tests.e2e.test_sameness import ROWS

pytestmark = pytest.mark.goal_row(38)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return results()


def own() -> list[Any]:
    return [row for row in discover() if row.distribution in OWN_DISTRIBUTIONS]


def test_it_covers_the_plugins_of_today_with_their_versions(found: dict[str, Any]) -> None:
    assert out_of_date(found, own()) == [], "run `make compatibility`"


def test_each_conforms(found: dict[str, Any]) -> None:
    """Or nothing could be run: its device is no CPU, and its kernels have no interpreter."""
    away = {
        (row.kind, row.name)
        for row in own()
        if row.manifest.devices and "cpu" not in row.manifest.devices and row.manifest.interpreter is None
    }
    for row in found["plugins"]:
        wanted = ("not here", {}) if (row["kind"], row["name"]) in away else ("passed", row["checks"])
        assert (row["outcome"], row["checks"]) == wanted, row["name"]


def test_the_stacks_are_those_that_the_tests_run(found: dict[str, Any]) -> None:
    settings = ("page_size", "deterministic", "memory")
    ran = [(run["schedule_policy"], run["event_loop"], *(run[name] for name in settings)) for run in found["runs"]]
    wanted = [(row["policy"], row["event_loop"], *(row[name] for name in settings)) for row in ROWS]
    assert sorted(ran) == sorted(wanted), "run `make compatibility`"
    assert all(run["same"] for run in found["runs"])


def test_another_version_or_plugin_is_seen(found: dict[str, Any]) -> None:
    row = own()[0]

    def seen(**changes: Any) -> list[str]:
        other = {"kind": row.kind, "name": row.name, "version": row.version, "manifest": row.manifest, **changes}
        return out_of_date(found, [*own()[1:], SimpleNamespace(**other)])

    assert seen() == []
    assert [problem.partition(" is ")[0] for problem in seen(version="9.9")] == [f"{row.kind}.{row.name}: version"]
    assert len(seen(manifest=SimpleNamespace(contract={row.kind: "9.0"}))) == 1
    assert seen(name="new") == [f"{row.kind}.new has no results", f"{row.kind}.{row.name} is not there any more"]
