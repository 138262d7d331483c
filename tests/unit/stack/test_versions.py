"""The handshake between a manifest and the core, before anything of the plugin is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from jackfield import __version__
from jackfield.hookspecs import KINDS, Kind
from jackfield.stack.discovery import versions
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.discovery.versions import incompatibilities
from tests.unit.stack.distributions import Site, plugin_row


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later core: attention at 2.3, cache at 0.4, all else as it is."""

    def at(name: str, version: tuple[int, int]) -> Kind:
        return replace(KINDS[name], contract=version)

    later = {**KINDS, "attention": at("attention", (2, 3)), "cache": at("cache", (0, 4))}
    monkeypatch.setattr(versions, "KINDS", MappingProxyType(later))


def problems(kind: str, contract: Mapping[str, str], **more: Any) -> list[str]:
    return incompatibilities(ManifestRow(kind=kind, name="x", contract=dict(contract), **more))


@pytest.mark.goal_row(14)
@pytest.mark.usefixtures("core")
@pytest.mark.parametrize(
    ("kind", "version", "remedy"),
    [
        ("attention", "2.3", None),
        ("attention", "2.0", None),
        ("attention", "2.4", "upgrade jackfield"),
        ("attention", "3.0", "upgrade jackfield"),
        ("attention", "1.0", "upgrade the plugin"),
        ("attention", "1.9", "upgrade the plugin"),
        ("attention", "0.1", "upgrade the plugin"),
        ("cache", "0.4", None),
        ("cache", "0.3", "upgrade the plugin"),
        ("cache", "0.5", "upgrade jackfield"),
        ("cache", "1.0", "upgrade jackfield"),
    ],
)
def test_the_major_must_be_equal_and_the_minor_reached_and_below_one_both_are_equal(
    kind: str, version: str, remedy: str | None
) -> None:
    speaks = {"attention": "2.3", "cache": "0.4"}[kind]
    expected = [f"it was written for the {kind} contract {version}, this core speaks {speaks}: {remedy}"]
    assert problems(kind, {kind: version}) == (expected if remedy else [])


@pytest.mark.goal_row(14)
@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("version", ["", "2", "2.", ".3", "2.3.1", "v2.3", "02.3", "2.03", " 2.3", "2.3\n", "two"])
def test_a_malformed_version_is_told_with_what_the_core_speaks(version: str) -> None:
    assert problems("attention", {"attention": version}) == [
        f'its attention contract {version!r} is not of the form "major.minor"; this core speaks 2.3'
    ]


@pytest.mark.goal_row(14)
@pytest.mark.usefixtures("core")
def test_a_missing_version_shows_what_to_write() -> None:
    text = "its manifest names no contract version for 'attention': write contract = { attention = \"2.3\" }"
    assert problems("attention", {"cache": "0.4"}) == [text]


@pytest.mark.goal_row(14)
@pytest.mark.usefixtures("core")
def test_every_contract_that_a_plugin_uses_is_checked() -> None:
    assert problems("model", {"model": "1.0", "attention": "2.1"}) == []
    assert problems("model", {"model": "1.0", "attention": "1.0", "atention": "1.0"}) == [
        "it was written for the attention contract 1.0, this core speaks 2.3: upgrade the plugin",
        "its manifest names the contract of a kind 'atention', which this core does not know; did you mean 'attention'?",
    ]


@pytest.mark.goal_row(15)
@pytest.mark.parametrize(
    ("wanted", "core", "fits"),
    [
        (">=0.1,<0.3", "0.1.0", True),
        (">=0.1,<0.3", "0.2.7", True),
        (">=0.1,<0.3", "0.3.0", False),
        (">=0.2", "0.1.9", False),
        ("~=0.2.1", "0.2.9", True),
        ("!=0.2.4", "0.2.4", False),
        (">=0.2", "0.3.0.dev1", True),
    ],
)
def test_a_plugin_names_the_cores_that_it_takes(wanted: str, core: str, fits: bool) -> None:
    row = ManifestRow(kind="cache", name="x", contract={"cache": "0.1"}, core=wanted)
    told = (
        f"it asks for jackfield {wanted} (`core` in its manifest), this is jackfield {core}: "
        "install a jackfield in that range, or another version of the plugin"
    )
    assert incompatibilities(row, core) == ([] if fits else [told])


def installed(site: Site, row: dict[str, Any]) -> PluginRow:
    site.add("acme", row)
    (found,) = discover([str(site.folder)])
    return found


@pytest.fixture
def site(tmp_path: Any) -> Site:
    return Site(tmp_path / "site")


@pytest.mark.goal_row(15)
def test_a_core_outside_the_range_is_told_by_discovery(site: Site) -> None:
    row = installed(site, plugin_row("cache", "x", core=">=7,<8"))
    assert row.status is Status.INCOMPATIBLE
    assert f"asks for jackfield >=7,<8 (`core` in its manifest), this is jackfield {__version__}" in row.problem


@pytest.mark.goal_row(15)
def test_this_core_inside_the_range_is_well(site: Site) -> None:
    assert installed(site, plugin_row("cache", "x", core=">=0.1")).status is Status.OK


@pytest.mark.goal_row(15)
@pytest.mark.parametrize("wanted", ["0.1", ">=", "", 1])
def test_a_malformed_range_is_a_problem_of_the_manifest(site: Site, wanted: object) -> None:
    row = installed(site, plugin_row("cache", "x", core=wanted))
    assert row.status is Status.BROKEN
    assert "manifest key 'core' must be a range of versions as in dependencies, such as \">=0.1,<0.3\"" in row.problem


@pytest.mark.goal_row(14)
def test_a_manifest_of_a_later_contract_is_told_by_its_version_before_its_unknown_keys(site: Site) -> None:
    row = installed(site, plugin_row("cache", "x", contract={"cache": "9.1"}, warmth=3))
    assert row.status is Status.INCOMPATIBLE
    assert row.problem.startswith(
        "it was written for the cache contract 9.1, this core speaks 0.1: upgrade jackfield; "
    )
    assert "unknown manifest key 'warmth'" in row.problem


def test_a_manifest_without_any_contract_is_broken(site: Site) -> None:
    row = installed(site, plugin_row("cache", "x", contract=None))
    assert row.status is Status.BROKEN
    assert "manifest key 'contract' is missing" in row.problem
