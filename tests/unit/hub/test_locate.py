"""What the user named becomes files on this machine, or one message that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.hub import locate
from jackfield.hub.locate import LocatedModel, locate_model


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model directory, a file, and a directory that looks like a hub id."""
    (tmp_path / "SmolLM2-mine").mkdir()
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What was asked of the hub, which is not there."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def fetch(repo: str, **arguments: Any) -> Path:
        calls.append((repo, arguments))
        return Path("snapshot")

    monkeypatch.setattr(locate, "fetch_from_hub", fetch)
    return calls


@pytest.mark.parametrize(
    ("named", "source", "name"),
    [
        ("tiny.gguf", "local file", "tiny"),
        ("./tiny.gguf", "local file", "tiny"),
        ("~/tiny.gguf", "local file", "tiny"),
        ("SmolLM2-mine", "local directory", "SmolLM2-mine"),
        ("./SmolLM2-mine/", "local directory", "SmolLM2-mine"),
        ("org/name", "local directory", "name"),
    ],
)
def test_what_exists_is_local(
    here: Path, asked: list[tuple[str, dict[str, Any]]], named: str, source: str, name: str
) -> None:
    found = locate_model(named)
    assert (found.source, found.name) == (source, name)
    assert found.path.exists()
    assert asked == []


def test_the_directory_itself_has_a_name(here: Path) -> None:
    assert locate_model(".").name == here.name


def test_an_id_goes_to_the_hub(here: Path, asked: list[tuple[str, dict[str, Any]]]) -> None:
    found = locate_model("org/other", revision="v1", download_dir=Path("~/kept"), progress=False)
    assert found == LocatedModel(path=Path("snapshot"), source="hub", name="org/other")
    assert asked == [("org/other", {"revision": "v1", "cache": here / "kept", "progress": False})]


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("./org/other", "no such file or directory"),
        ("/no/such/place", "/no does not exist"),
        ("../up", "no such file or directory"),
        ("~/tiny.ggf", "did you mean"),
        ("org/tiny.gguf", "no such file or directory"),
        ("SmolLM2-mime", "did you mean 'SmolLM2-mine'?"),
        ("SmolLM2-mime", "not an id of the form owner/name"),
        ("a/b/c", "not an id of the form owner/name"),
        ("a b/c", "not an id of the form owner/name"),
        ("-a/c", "not an id of the form owner/name"),
        ("x" * 5000, "name too long"),
        ("tiny.gguf/deeper", "Not a directory"),
        ("./circle/x", "symbolic links"),
        ("~nobody-of-this-name/x", "home directory"),
        ("a\0b", "no such file"),
        ("", "is empty"),
        ("  ", "is empty"),
    ],
)
def test_what_is_neither_is_refused_without_asking_the_hub(
    here: Path, asked: list[tuple[str, dict[str, Any]]], named: str, says: str
) -> None:
    (here / "circle").symlink_to(here / "circle")
    with pytest.raises(ConfigurationError) as caught:
        locate_model(named)
    assert says in caught.value.message
    assert "--model-path" in caught.value.message
    assert asked == []


@pytest.mark.parametrize("named", [None, "tiny.gguf"])
def test_a_revision_is_for_the_hub_only(here: Path, named: str | None) -> None:
    with pytest.raises(ConfigurationError, match="--revision v1"):
        locate_model(named, revision="v1")


def test_nothing_named_is_the_embedded_model(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def embedded(download_dir: Path | None, *, progress: bool) -> Path:
        asked.append((download_dir, progress))
        return here / "tiny.gguf"

    monkeypatch.setattr(locate, "locate_embedded", embedded)
    found = locate_model(None, download_dir=here / "kept")
    assert (found.source, found.name) == ("embedded", "SmolLM2-135M-Instruct")
    assert asked == [(here / "kept", True)]


def test_a_user_without_a_home_is_told_what_to_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigurationError, match="--download-dir"):
        locate_model(None)


def test_the_home_of_nobody_is_no_download_directory(here: Path) -> None:
    with pytest.raises(ConfigurationError, match="--download-dir ~nobody-of-this-name"):
        locate_model(None, download_dir=Path("~nobody-of-this-name/x"))
