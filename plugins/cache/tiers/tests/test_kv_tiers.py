"""The stores by themselves: what was put comes back, sizes hold, and a file that is not whole is no block."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jackfield.hookspecs import KVTierContext
from jackfield_cache_tiers.disk import jackfield_kv_tier as make_disk
from jackfield_cache_tiers.disk_tier import HEADER, DiskTier
from jackfield_cache_tiers.host import jackfield_kv_tier as make_host
from jackfield_cache_tiers.host_tier import HostTier
from jackfield_cache_tiers.lru import LruIndex
from jackfield_cache_tiers.options import DiskOptions, HostOptions

SIZE = 2**18


def name(i: int) -> bytes:
    return i.to_bytes(32, "big")


def block(i: int) -> bytes:
    return bytes([i % 256]) * SIZE


def disk(path: Path, **options: object) -> DiskTier:
    return DiskTier(DiskOptions.model_validate({"path": path, **options}), SIZE)


@given(
    capacity=st.integers(1, 30),
    steps=st.lists(st.tuples(st.sampled_from(["add", "touch", "drop"]), st.integers(0, 6), st.integers(1, 12))),
)
def test_the_index_against_a_list(capacity: int, steps: list[tuple[str, int, int]]) -> None:
    index = LruIndex(capacity)
    model: list[tuple[bytes, int]] = []
    for what, i, size in steps:
        key = name(i)
        if what == "add":
            gone = index.add(key, size)
            model = [entry for entry in model if entry[0] != key] + [(key, size)]
            dropped = []
            while sum(entry[1] for entry in model) > capacity:
                dropped.append(model.pop(0)[0])
            assert gone == dropped
        elif what == "touch":
            index.touch(key)
            model.sort(key=lambda entry: entry[0] == key)
        else:
            index.drop(key)
            model = [entry for entry in model if entry[0] != key]
        use = index.use()
        assert (use.blocks, use.bytes) == (len(model), sum(entry[1] for entry in model))
        assert [key in index for key in map(name, range(7))] == [
            any(entry[0] == key for entry in model) for key in map(name, range(7))
        ]


def test_host_keeps_the_newest() -> None:
    tier = HostTier(HostOptions(size_mib=1))
    for i in range(4):
        tier.put(name(i), block(i))
    assert tier.get(name(0)) == block(0)  # used just now
    tier.put(name(4), block(4))
    assert not tier.has(name(1))
    assert tier.get(name(1)) is None
    assert tier.get(name(0)) == block(0)
    assert tier.use().bytes == 2**20
    tier.clear()
    assert not tier.has(name(0))
    assert tier.get(name(0)) is None


def test_disk_survives_a_restart_with_its_order(tmp_path: Path) -> None:
    root = tmp_path / "a" / "b"
    tier = disk(root, size_mib=2)
    for i in range(3):
        tier.put(name(i), block(i))
        os.utime(root / f"{name(i).hex()}.kv", ns=(i, i))
    assert tier.get(name(0)) == block(0)
    again = disk(root, size_mib=1)  # three fit
    assert [again.has(name(i)) for i in range(3)] == [True, True, True]
    again.put(name(3), block(3))
    assert [again.has(name(i)) for i in range(4)] == [True, False, True, True]
    assert not (root / f"{name(1).hex()}.kv").exists()
    assert again.get(name(3)) == block(3)


def test_disk_is_smaller_than_before(tmp_path: Path) -> None:
    tier = disk(tmp_path, size_mib=4)
    for i in range(8):
        tier.put(name(i), block(i))
    disk(tmp_path, size_mib=1)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2**20


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "empty", "longer", "under another name"])
def test_a_file_that_is_not_whole_is_a_miss_and_goes(tmp_path: Path, damage: str) -> None:
    tier = disk(tmp_path)
    tier.put(name(1), block(1))
    file = tmp_path / f"{name(1).hex()}.kv"
    data = bytearray(file.read_bytes())
    key = name(1)
    if damage == "truncated":
        file.write_bytes(data[:-1])
    elif damage == "flipped":
        data[HEADER + 5] ^= 1
        file.write_bytes(data)
    elif damage == "foreign":
        file.write_bytes(b"#!/bin/sh\n" * SIZE)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "longer":
        file.write_bytes(data + b"x")
    else:
        key = name(2)
        file.rename(tmp_path / f"{key.hex()}.kv")
    tier = disk(tmp_path)
    assert tier.has(key)
    with pytest.raises(ValueError, match="damaged"):
        tier.get(key)
    assert not tier.has(key)
    assert list(tmp_path.iterdir()) == []
    assert tier.get(key) is None


def test_blocks_of_another_size_are_not_given_out(tmp_path: Path) -> None:
    disk(tmp_path).put(name(1), block(1))
    tier = DiskTier(DiskOptions(path=tmp_path), SIZE // 2)
    with pytest.raises(ValueError, match="damaged"):
        tier.get(name(1))


def test_other_files_and_links_are_not_touched(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    root = tmp_path / "root"
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    (root / f"{name(7).hex()}.kv").symlink_to(outside)
    tier = disk(root, size_mib=1, clear_on_flush=True)
    assert not tier.has(name(7))
    for i in range(6):
        tier.put(name(i), block(i))
    tier.clear()
    assert sorted(file.name for file in root.iterdir()) == [f"{name(7).hex()}.kv", "notes.txt"]
    assert outside.read_bytes() == b"precious"


def test_what_another_process_deleted_is_a_miss(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    tier.put(name(1), block(1))
    (tmp_path / f"{name(1).hex()}.kv").unlink()
    assert tier.get(name(1)) is None
    assert not tier.has(name(1))


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = disk(tmp_path)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        tier.put(name(1), block(1))
    assert not tier.has(name(1))
    assert list(tmp_path.iterdir()) == []


def test_a_flush_leaves_the_files_unless_told(tmp_path: Path) -> None:
    tier = disk(tmp_path)
    tier.put(name(1), block(1))
    tier.clear()
    assert tier.has(name(1))
    other = disk(tmp_path, clear_on_flush=True)
    other.clear()
    assert not other.has(name(1))
    assert list(tmp_path.iterdir()) == []


def test_disk_needs_a_path() -> None:
    """Told by the options, so that `jackfield explain` tells it too."""
    with pytest.raises(ValidationError, match="path"):
        DiskOptions.model_validate({"size_mib": 5})


def test_a_path_that_is_no_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("")
    with pytest.raises(NotADirectoryError, match="the option path names something else than a directory"):
        DiskTier(DiskOptions(path=tmp_path / "kv"), 8)


def test_the_entry_points(tmp_path: Path) -> None:
    def context(plugin: str, options: DiskOptions | HostOptions) -> KVTierContext:
        return KVTierContext(
            kind="kv_tier", name=plugin, instance=plugin, options=options, block_tokens=64, block_bytes=SIZE
        )

    tier = make_disk(context("disk", DiskOptions(path=tmp_path, write="back", min_load_tokens=8)))
    assert (tier.rule.write, tier.rule.min_load_tokens) == ("back", 8)
    assert make_host(context("host", HostOptions(write_after=3))).rule.write_after == 3
    with pytest.raises(TypeError):
        make_host(context("host", DiskOptions(path=tmp_path)))
