"""Where packed weights are kept, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.weight_cache import weight_cache
from jackfield.stack.discovery.scan import discover
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.selection.single import select_one


@pytest.fixture(scope="module")
def plugins() -> tuple[SelectedPlugin, SelectedPlugin]:
    rows = discover()
    return select_one(rows, "ops", "torch", {}), select_one(rows, "loader", "gguf", {})


def test_the_users_cache_directory_a_named_one_or_none(
    plugins: tuple[SelectedPlugin, SelectedPlugin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    found = weight_cache(ServerArgs(), *plugins)
    assert found is not None
    assert (found.directory, found.max_bytes) == (tmp_path / "xdg" / "jackfield" / "weights", 16 * 2**30)
    monkeypatch.chdir(tmp_path)
    named = weight_cache(ServerArgs(weight_cache_dir="here", weight_cache_size=0.5), *plugins)
    assert named is not None
    assert (named.directory, named.max_bytes) == (tmp_path / "here", 2**29)
    assert weight_cache(ServerArgs(weight_cache_dir="none"), *plugins) is None
    assert not any(tmp_path.iterdir()), "nothing is created before there is something to keep"


def test_a_user_without_a_home_runs_without_a_cache(
    plugins: tuple[SelectedPlugin, SelectedPlugin], monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert weight_cache(ServerArgs(), *plugins) is None


def test_the_owner_changes_with_the_plugins(plugins: tuple[SelectedPlugin, SelectedPlugin], tmp_path: Path) -> None:
    ops, loader = plugins
    args = ServerArgs(weight_cache_dir=str(tmp_path))
    found = [weight_cache(args, *pair) for pair in ((ops, loader), (ops, loader), (loader, ops))]
    one, two, other = (cache.owner for cache in found if cache is not None)
    assert one == two
    assert one != other
    assert f"{ops.distribution} {ops.version} torch " in one
