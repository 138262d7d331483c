"""Every distribution of the repository: laid out as the contract says, registered, installable alone, free of local paths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS

ROOT = Path(__file__).resolve().parents[2]
PLACES = sorted(path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/*/pyproject.toml"))


def project_of(place: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]


def manifest_rows(place: str) -> list[dict[str, Any]]:
    _, group, dist = place.split("/")
    text = (ROOT / place / f"jackfield_{group}_{dist}" / "plugin.toml").read_text()
    rows: list[dict[str, Any]] = tomllib.loads(text)["plugin"]
    return rows


def test_the_distributions_that_the_contract_lists_are_there() -> None:
    assert {
        "plugins/attention/torch",
        "plugins/cache/prefix",
        "plugins/models/encoder",
        "plugins/models/gemma",
        "plugins/models/llama",
        "plugins/models/loaders",
        "plugins/models/qwen",
        "plugins/observability/jsonl",
        "plugins/observability/prometheus",
        "plugins/ops/cpu",
        "plugins/ops/torch",
        "plugins/sampling/processors",
        "plugins/scheduler/loops",
        "plugins/scheduler/policies",
        "plugins/worker/simulated",
        "plugins/worker/torch",
    } <= set(PLACES)


def test_all_of_them_count_as_our_own_and_nothing_else_does() -> None:
    assert set(OWN_DISTRIBUTIONS) == {project_of(place)["name"] for place in PLACES}


def test_requirements_list_all_of_them() -> None:
    subprocess.run([sys.executable, ROOT / ".ci" / "requirements.py", "--check"], check=True)


@pytest.mark.parametrize("place", PLACES)
def test_names_follow_paths(place: str) -> None:
    _, group, dist = place.split("/")
    package = f"jackfield_{group}_{dist}"
    project = project_of(place)
    assert project["name"] == f"jackfield-{group}-{dist}"
    assert project["version"] == __version__
    assert f"jackfield=={__version__}" in project["dependencies"]
    assert (ROOT / place / package / "__init__.py").read_text() == ""
    assert (ROOT / place / "README.md").read_text().strip()
    assert list((ROOT / place / "tests").glob("test_*.py"))
    kinds = {KINDS[name.removeprefix("jackfield.")].group for name in project["entry-points"]}
    assert group in kinds  # others may be beside it that share its code
    for names in project["entry-points"].values():
        assert all(module.startswith(f"{package}.") for module in names.values())


@pytest.mark.parametrize("place", PLACES)
def test_each_is_registered_with_what_its_manifest_says(place: str) -> None:
    project = project_of(place)
    found = {(row.kind, row.name) for row in discover() if row.distribution == project["name"] and not row.problem}
    declared = {
        (group.removeprefix("jackfield."), name) for group, names in project["entry-points"].items() for name in names
    }
    assert found == declared == {(row["kind"], row["name"]) for row in manifest_rows(place)}


@pytest.mark.slow
def test_wheels_carry_no_local_paths_and_all_their_parts(wheels: dict[str, Path]) -> None:
    local = [str(ROOT).encode(), os.path.expanduser("~").encode() + b"/"]
    for place, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            for name in names:
                content = archive.read(name)
                assert not any(path in content for path in local), f"{wheel.name}: {name}"
        if place == ".":
            assert "jackfield/py.typed" in names
            assert any(name.endswith("smollm2-135m-instruct.json") for name in names)
            templates = "jackfield/entrypoints/authoring/templates/"
            assert f"{templates}common/tests/test_conformance.py.jinja" in names
            names = [name for name in names if not name.startswith(templates)]  # they are no tests of ours
        else:
            assert any(name.endswith("/plugin.toml") for name in names)
        assert not any("/tests/" in name or name.startswith("tests/") for name in names)


def install(wheel: Path, target: Path) -> Path:
    """Into an empty folder, without dependencies."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", target, wheel], check=True, capture_output=True, text=True)
    return target


@pytest.fixture(scope="module")
def core(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheels["."], tmp_path_factory.mktemp("core"))


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_each_installs_alone_beside_the_core(place: str, core: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    """The core lists exactly this distribution's plugins there."""
    site = [str(core), str(install(wheels[place], tmp_path))]
    third_party = sysconfig.get_path("purelib")
    # -S leaves out the editable installs of this very repository; third-party packages are put back by hand.
    code = f"""
import json, sys
sys.path[:0] = {site!r}
sys.path.append({third_party!r})
from jackfield.stack.discovery import scan
rows = [[row.kind, row.name, row.problem] for row in scan.discover({site!r})]
print(json.dumps({{"from": scan.__file__, "rows": rows}}))
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["from"].startswith(site[0])
    assert sorted(told["rows"]) == sorted([row["kind"], row["name"], ""] for row in manifest_rows(place))
