from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.stack.digest import content_digest, package_digest, stack_hash
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from tests.unit.stack.distributions import Site, plugin_row


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


FILES = {"__init__.py": b"", "plugin.toml": b"x = 1", "sub/kernel.so": b"\0\1", "sub/a.py": b"a"}


def test_what_does_not_run_does_not_count(tmp_path: Path) -> None:
    bare = tree(tmp_path / "wheel", FILES)
    dirty = tree(
        tmp_path / "editable", {**FILES, "README.md": b"r", "__pycache__/a.cpython-311.pyc": b"c", "py.typed": b""}
    )
    assert content_digest(bare) == content_digest(dirty)


@pytest.mark.parametrize(
    "change",
    [
        {"sub/a.py": b"b"},
        {"plugin.toml": b"x = 2"},
        {"sub/kernel.so": b"\0\2"},
        {"sub/new.py": b""},
        {"sub/a.py": b"", "sub/aa.py": b"a"},
    ],
)
def test_every_byte_and_every_path_that_runs_counts(tmp_path: Path, change: dict[str, bytes]) -> None:
    assert content_digest(tree(tmp_path / "a", FILES)) != content_digest(tree(tmp_path / "b", FILES | change))


def test_moving_bytes_between_name_and_content_is_seen(tmp_path: Path) -> None:
    assert content_digest(tree(tmp_path / "a", {"ab.py": b"c"})) != content_digest(
        tree(tmp_path / "b", {"a.py": b"bc"})
    )


def selected(site: Site, name: str = "x") -> SelectedPlugin:
    package = site.add(f"acme-{name}", plugin_row("cache", name))
    return SelectedPlugin(
        kind="cache",
        name=name,
        instance=name,
        distribution=f"acme-{name}",
        version="1.0",
        package=package,
        module=f"{package}.{name}",
        manifest=ManifestRow(kind="cache", name=name),
        reason="because",
        options={"size": 1},
    )


def test_the_hash_depends_on_what_runs_and_on_nothing_else(live_site: Site) -> None:
    one = selected(live_site)
    base = stack_hash(ResolvedStack(plugins=(one,)))
    assert len(base) == 64
    for same in (replace(one, reason="named"), replace(one, version="9"), replace(one, distribution="other")):
        assert stack_hash(ResolvedStack(plugins=(same,))) == base
    for other in (
        replace(one, options={"size": 2}),
        replace(one, instance="second"),
        replace(one, name="y"),
        replace(one, kind="ops"),
    ):
        assert stack_hash(ResolvedStack(plugins=(other,))) != base
    assert stack_hash(ResolvedStack(plugins=())) != base


def test_the_hash_depends_on_the_packages_bytes_and_imports_nothing(live_site: Site) -> None:
    one = selected(live_site)
    (live_site.folder / one.package / "__init__.py").write_text("raise RuntimeError")
    base = stack_hash(ResolvedStack(plugins=(one,)))
    package_digest.cache_clear()
    (live_site.folder / one.package / "x.py").write_text("changed = True\n")
    assert stack_hash(ResolvedStack(plugins=(one,))) != base


def test_a_copy_elsewhere_has_the_same_hash(live_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = selected(live_site)
    base = stack_hash(ResolvedStack(plugins=(one,)))
    shutil.copytree(live_site.folder, tmp_path / "elsewhere")
    package_digest.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    assert stack_hash(ResolvedStack(plugins=(one,))) == base


def test_the_order_of_plugins_counts(live_site: Site) -> None:
    one, two = selected(live_site, "x"), selected(live_site, "y")
    assert stack_hash(ResolvedStack(plugins=(one, two))) != stack_hash(ResolvedStack(plugins=(two, one)))


def test_a_package_that_vanished(live_site: Site) -> None:
    with pytest.raises(ConfigurationError, match="surely_absent of a selected plugin cannot be imported here"):
        stack_hash(ResolvedStack(plugins=(replace(selected(live_site), package="surely_absent"),)))
