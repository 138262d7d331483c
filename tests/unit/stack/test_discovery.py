from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.scan import discover
from tests.unit.stack.distributions import Site, fresh_package, plugin_row


def seen(site: Site) -> Catalogue:
    return discover([str(site.folder)])


def only(catalogue: Catalogue) -> PluginRow:
    (row,) = catalogue
    return row


@pytest.mark.goal_row(2)
def test_a_healthy_plugin_is_a_row_with_its_manifest_and_is_not_imported(site: Site) -> None:
    package = site.add(
        "acme-lpm", plugin_row("schedule_policy", "lpm", priority=3), version="2.1", sources={"lpm": "1/0"}
    )
    row = only(seen(site))
    assert (row.kind, row.name, row.distribution, row.version) == ("schedule_policy", "lpm", "acme-lpm", "2.1")
    assert (row.status, row.problem) == (Status.OK, "")
    assert row.summary == "schedule_policy lpm of a test"
    assert row.manifest is not None
    assert row.manifest.priority == 3
    assert row.module == f"{package}.lpm"
    assert not [name for name in sys.modules if name.startswith(package)]


@pytest.mark.goal_row(2)
def test_the_package_itself_is_not_imported(site: Site) -> None:
    package = site.add("acme", plugin_row("cache", "x"))
    (site.folder / package / "__init__.py").write_text("raise RuntimeError('imported')")
    assert only(seen(site)).status is Status.OK


def test_an_editable_install_is_found_through_the_path_file_it_left(site: Site, tmp_path: Path) -> None:
    """An editable install has its dist-info in one folder and its package in another, both on the path."""
    source = Site(tmp_path / "checkout")
    package = source.add("acme", plugin_row("cache", "x"))
    (tmp_path / "checkout" / "acme-1.0.dist-info").rename(site.folder / "acme-1.0.dist-info")
    row = only(discover([str(site.folder), str(source.folder)]))
    assert row.status is Status.OK
    assert row.location == source.folder / package


def test_the_running_process_finds_what_its_own_finders_find(live_site: Site) -> None:
    live_site.add("acme", plugin_row("cache", "of-this-test"))
    (row,) = discover().find("cache", "of-this-test")
    assert row.status is Status.OK


def test_a_broken_entry_point_file_of_anybody_is_a_row_and_hides_no_other(site: Site) -> None:
    site.add("zeta", plugin_row("cache", "x"))
    site.info("alien", "0.3", "[console_scripts\nbroken")
    site.info("binary", "0.4", "").joinpath("entry_points.txt").write_bytes(b"\xff\xfe\x00[")
    rows = {row.distribution: row for row in seen(site)}
    assert rows["zeta"].status is Status.OK
    assert rows["alien"].status is rows["binary"].status is Status.BROKEN
    assert rows["alien"].version == "0.3"
    assert "entry_points.txt cannot be read" in rows["alien"].problem


def test_percent_signs_and_other_groups_do_no_harm(site: Site) -> None:
    site.info("other", "1", "[console_scripts]\nx%y = a.b:c\n[other.group]\nA = b\n")
    assert len(seen(site)) == 0


def test_duplicate_keys_in_one_file_are_reported(site: Site) -> None:
    package = fresh_package("acme")
    site.add(
        "acme",
        plugin_row("cache", "x"),
        package=package,
        entry_points=f"[jackfield.cache]\nx={package}.x\nx={package}.y\n",
    )
    assert only(seen(site)).status is Status.BROKEN


@pytest.mark.parametrize("value", ["not a module!", "acme.module:attribute", "acme.module [extra]", ""])
def test_an_entry_point_that_is_no_module(site: Site, value: str) -> None:
    site.info("acme", "1", f"[jackfield.cache]\nx = {value}\n")
    row = only(seen(site))
    assert row.status is Status.BROKEN
    assert "is not the dotted name of a module" in row.problem


def test_a_package_that_is_not_there(site: Site) -> None:
    site.info("acme", "1", "[jackfield.cache]\nx = surely_not_installed.x\n")
    assert "surely_not_installed is not importable" in only(seen(site)).problem


def test_a_module_that_is_not_there(site: Site) -> None:
    package = site.add("acme", plugin_row("cache", "x"))
    (site.folder / package / "x.py").unlink()
    row = only(seen(site))
    assert row.status is Status.BROKEN
    assert f"module {package}.x does not exist" in row.problem


def test_a_module_in_a_subpackage_is_found_without_importing_the_subpackage(site: Site) -> None:
    package = fresh_package("acme")
    site.add(
        "acme",
        plugin_row("cache", "x"),
        package=package,
        sources={"sub.__init__": "1/0", "sub.deep": ""},
        entry_points=f"[jackfield.cache]\nx = {package}.sub.deep\n",
    )
    assert only(seen(site)).status is Status.OK


def test_no_manifest(site: Site) -> None:
    package = site.add("acme", plugin_row("cache", "x"), manifest="")
    assert only(seen(site)).problem == f"its package {package} has no plugin.toml"


def test_a_single_module_cannot_carry_a_manifest(site: Site) -> None:
    (site.folder / "loose_module_of_acme.py").touch()
    site.info("acme", "1", "[jackfield.cache]\nx = loose_module_of_acme\n")
    assert "is a single module" in only(seen(site)).problem


def test_a_manifest_that_is_not_toml(site: Site) -> None:
    site.add("acme", plugin_row("cache", "x"), manifest="[[plugin]\n")
    assert "plugin.toml is not valid TOML" in only(seen(site)).problem


def test_an_entry_point_without_a_row_offers_the_nearest_row(site: Site) -> None:
    package = fresh_package("acme")
    site.add(
        "acme",
        plugin_row("cache", "radix"),
        package=package,
        entry_points=f"[jackfield.cache]\nradx = {package}.radix\n",
    )
    rows = {row.name: row for row in seen(site)}
    assert "has no [[plugin]] row for cache 'radx'; did you mean 'radix'?" in rows["radx"].problem
    assert "no entry point of that name in the group jackfield.cache" in rows["radix"].problem
    assert {row.status for row in rows.values()} == {Status.BROKEN}


def test_two_rows_of_one_name(site: Site) -> None:
    package = fresh_package("acme")
    row = plugin_row("cache", "x")
    site.add("acme", row, row, package=package, entry_points=f"[jackfield.cache]\nx = {package}.x\n")
    assert "has 2 rows for cache 'x'" in only(seen(site)).problem


def test_an_unknown_kind_shows_up_with_the_nearest(site: Site) -> None:
    site.add("acme", plugin_row("atention", "x"))
    row = only(seen(site))
    assert row.status is Status.UNKNOWN_KIND
    assert "no kind 'atention'; did you mean 'attention'?" in row.problem


def test_names_are_normalised(site: Site) -> None:
    package = fresh_package("acme")
    site.add(
        "Acme.Flash_Attn",
        plugin_row("attention", "Flash.Attn"),
        package=package,
        sources={"flash": ""},
        entry_points=f"[jackfield.attention]\nflash_attn = {package}.flash\n",
    )
    catalogue = seen(site)
    row = only(catalogue)
    assert (row.name, row.distribution, row.status) == ("flash-attn", "acme-flash-attn", Status.OK)
    assert catalogue.find("attention", "FLASH_attn") == (row,)


def test_a_bad_name(site: Site) -> None:
    package = fresh_package("acme")
    site.add(
        "acme",
        plugin_row("cache", "räd ix"),
        package=package,
        entry_points=f"[jackfield.cache]\nräd ix = {package}.m\n",
        sources={"m": ""},
    )
    assert "is not of the form" in only(seen(site)).problem


def test_two_distributions_that_offer_one_name_are_both_in_conflict(site: Site) -> None:
    site.add("acme", plugin_row("cache", "radix"), version="1.1")
    site.add("zeta", plugin_row("cache", "radix"), version="2.2")
    rows = seen(site).find("cache", "radix")
    assert [row.status for row in rows] == [Status.CONFLICT, Status.CONFLICT]
    assert all("acme 1.1 and zeta 2.2 both offer cache 'radix'" in row.problem for row in rows)


def test_a_distribution_twice_on_the_path_counts_once_and_the_first_wins(site: Site, tmp_path: Path) -> None:
    other = Site(tmp_path / "other")
    site.add("acme", plugin_row("cache", "x"), version="1.0")
    other.add("acme", plugin_row("cache", "x"), version="2.0")
    assert only(discover([str(site.folder), str(other.folder), str(site.folder)])).version == "1.0"


def test_path_entries_that_are_no_folders_are_passed_over(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(b"PK")
    site.add("acme", plugin_row("cache", "x"))
    catalogue = discover([str(tmp_path / "file.zip"), str(tmp_path / "absent"), str(site.folder)])
    assert only(catalogue).status is Status.OK


def test_metadata_that_is_missing_is_that_rows_problem_or_none(site: Site) -> None:
    site.add("acme", plugin_row("cache", "x"), version="3.0")
    (site.folder / "acme-3.0.dist-info" / "METADATA").unlink()
    assert only(seen(site)).version == "3.0"


def test_layouts_of_a_manifest_are_kept(site: Site) -> None:
    package = fresh_package("acme")
    manifest = """
[[plugin]]
kind = "attention"
name = "x"
summary = "s"
contract = { attention = "1.0" }
layouts = ["x/fused"]
[[layout]]
name = "x/fused"
tensors = [{ role = "kv", shape = ["page", 2, "kv_heads", "head"] }]
"""
    site.add("acme", plugin_row("attention", "x"), package=package, manifest=manifest)
    (layout,) = only(seen(site)).layouts
    assert layout.name == "x/fused"
    assert layout.tensors[0].sizes(page_size=4, num_kv_heads=3, head_size=8, v_head_size=8) == (4, 2, 3, 8)


def test_what_pip_is_about_to_delete_is_passed_over(site: Site) -> None:
    site.add("acme", plugin_row("cache", "x"), version="2.0")
    site.info("~cme", "1.0", "[jackfield.cache]\nx = acme_of_old.x\n")
    assert only(seen(site)).version == "2.0"
