"""Digests of files that are remembered: read once, and again whenever the file may be another."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jackfield.hub import file_digests
from jackfield.hub.file_digests import MEMORY, file_digest


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were read. Every change counts as long past."""
    names: list[str] = []
    digest = hashlib.file_digest

    def counted(opened: Any, name: str) -> Any:
        names.append(Path(opened.name).name)
        return digest(opened, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    monkeypatch.setattr(file_digests, "JUST_NOW_NS", -(10**18))
    return names


def test_an_unchanged_file_is_read_once(tmp_path: Path, read: list[str]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    expected = hashlib.sha256(b"one").hexdigest()
    assert [file_digest(file, tmp_path) for _ in range(3)] == [expected] * 3
    (tmp_path / "link").symlink_to(file)
    assert file_digest(tmp_path / "link", tmp_path) == expected
    assert read == ["weights"]


def test_one_that_changed_just_now_is_read_again(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_digests, "JUST_NOW_NS", 10**18)
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    assert file_digest(file, tmp_path) == file_digest(file, tmp_path)
    assert read == ["weights"] * 2
    assert not (tmp_path / MEMORY).exists()


def test_another_content_of_the_same_size_and_time_is_noticed(tmp_path: Path, read: list[str]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    before = file.stat()
    first = file_digest(file, tmp_path)
    file.write_bytes(b"two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file_digest(file, tmp_path) == hashlib.sha256(b"two").hexdigest() != first
    other = tmp_path / "other"
    other.write_bytes(b"six")
    os.replace(other, file)
    assert file_digest(file, tmp_path) == hashlib.sha256(b"six").hexdigest()


@pytest.mark.parametrize("content", ["{", "[]", '{"%s": 3}', '{"%s": []}'])
def test_a_memory_that_cannot_be_read_is_made_again(tmp_path: Path, read: list[str], content: str) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    (tmp_path / MEMORY).write_text(content.replace("%s", str(file)))
    assert file_digest(file, tmp_path) == file_digest(file, tmp_path) == hashlib.sha256(b"one").hexdigest()
    assert read == ["weights"]
    assert list(json.loads((tmp_path / MEMORY).read_text())) == [str(file)]


def test_where_nothing_can_be_written_it_is_read_each_time(tmp_path: Path, read: list[str]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    assert file_digest(file, tmp_path / "nowhere") == file_digest(file, tmp_path / "nowhere")
    assert read == ["weights"] * 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights"], "nothing is made, and nothing is left"
    with pytest.raises(FileNotFoundError):
        file_digest(tmp_path / "none", tmp_path)


def test_only_the_newest_are_remembered(tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_digests, "MOST_REMEMBERED", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
        file_digest(tmp_path / name, tmp_path)
    assert [Path(name).name for name in json.loads((tmp_path / MEMORY).read_text())] == ["b", "c"]
