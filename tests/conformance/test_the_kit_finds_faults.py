"""Each suite on plugins with one fault each: the check that is meant for it fails, and no unrelated one does.

The faulty plugins are installed as one distribution. One child process for the kinds without torch, one for those with it,
and one for the randomised checks and those that count work, which are run on few.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jackfield.entrypoints.cli import main
from tests.conformance.faulty import (
    caches,
    gates,
    grammars,
    loops,
    observers,
    parsers,
    policies,
    processors,
    protocols,
    sinks,
    tiers,
)
from tests.unit.stack.distributions import Site, plugin_row

KINDS: Mapping[str, ModuleType] = {
    "schedule_policy": policies,
    "cache": caches,
    "event_loop": loops,
    "metrics": sinks,
    "observer": observers,
    "gate": gates,
    "grammar": grammars,
    "kv_tier": tiers,
    "logits_processor": processors,
    "parser": parsers,
    "routes": protocols,
}
COSTLY = ("work_grows_no_faster_than_sorting", "keeps_no_table", "work_is_linear")
"""Checks that take longest, and are run on the plugins that they are meant for and on sound ones."""
SLOW = ("scheduler", "for_ever", "agree", "long_keys", "deep", "wide", "those_of_every")
"""Whole schedulers and models under random requests: they find most faults too, later and less clearly."""
FEW = ("requests_agree_with_a_model[1]", "deep", *COSTLY)

FAULTS = [(kind, name) for kind, module in KINDS.items() for name in module.CAUGHT]


def row(kind: str, name: str) -> dict[str, Any]:
    features: tuple[str, ...] = ()
    if kind == "event_loop" and name in loops.OVERLAP:
        features = ("overlap",)
    if kind == "cache" and name != "first-page-alone":
        features = ("cached_tokens", "forest")
    if kind == "parser":
        features = ("tool_calls",)
    if kind == "grammar":
        features = ("regex",)
    return plugin_row(kind, name, features=features)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """ "kind.name" -> its part of the report."""
    folder = tmp_path_factory.mktemp("faulty")
    site = Site(folder / "site")
    names = {kind: [*module.CAUGHT, *getattr(module, "SLOWLY", ())] for kind, module in KINDS.items()}
    sources = {kind: Path(module.__file__ or "").read_text() for kind, module in KINDS.items()}
    entries = "".join(
        f"[jackfield.{kind}]\n" + "".join(f"{name} = acme_faulty.{kind}\n" for name in listed)
        for kind, listed in names.items()
    )
    rows = [row(kind, name) for kind, listed in names.items() for name in listed]
    site.add("acme-faulty", *rows, package="acme_faulty", sources=sources, entry_points=entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site.folder))
        importlib.invalidate_caches()
        most = " and ".join(f"not {check}" for check in (*SLOW, *COSTLY))
        found = _run(folder / "most.json", [f"{kind}.{name}" for kind, name in FAULTS], most)
        few = [
            f"{kind}.{name}" for kind, name in FAULTS if kind in ("parser", "schedule_policy") and costly(kind, name)
        ]
        few += [f"cache.{name}" for name in caches.SLOWLY]
        for key, report in _run(folder / "few.json", few, " or ".join(FEW)).items():
            checks = [*found.get(key, report)["checks"], *report["checks"]]
            outcomes = {report["outcome"], found.get(key, report)["outcome"]}
            found[key] = {
                **report,
                "checks": checks,
                "outcome": "failed" if "failed" in outcomes else report["outcome"],
            }
        return found


def costly(kind: str, name: str) -> bool:
    """Whether the checks that take longest are run on it."""
    meant = KINDS[kind].CAUGHT[name]
    return not meant or bool(set(meant) & set(COSTLY))


def _run(file: Path, keys: list[str], checks: str) -> dict[str, dict[str, Any]]:
    assert main(["conformance", *keys, "--check", checks, "--json", str(file)]) == 1
    return {plugin["plugin"]: plugin for plugin in json.loads(file.read_text())["plugins"]}


@pytest.mark.goal_row(35)
@pytest.mark.parametrize(("kind", "name"), FAULTS)
def test_a_fault_is_found_by_its_check_and_no_other(reports: dict[str, dict[str, Any]], kind: str, name: str) -> None:
    meant = KINDS[kind].CAUGHT[name]
    report = reports[f"{kind}.{name}"]
    failed = {check["check"]: check["detail"] for check in report["checks"] if check["outcome"] == "failed"}
    assert report["outcome"] == ("failed" if meant else "passed")
    assert set(meant[:1]) <= set(failed), failed
    if "*" not in meant:
        assert set(failed) <= set(meant), failed


@pytest.mark.parametrize("name", caches.SLOWLY)
def test_what_takes_long_to_show_is_found_too(reports: dict[str, dict[str, Any]], name: str) -> None:
    failed = {check["check"] for check in reports[f"cache.{name}"]["checks"] if check["outcome"] == "failed"}
    assert failed == {caches.SLOWLY[name]}
