"""`benchmarks/gpu/run.py --tiny` runs to its end, with nothing of the runtime's libraries, as on a GPU's machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What such a machine lacks cannot be found, and what nobody chose must not be imported.
BLOCKER = """
import os
import sys
from importlib.machinery import ModuleSpec

ABSENT = {"pydantic", "pydantic_core", "pydantic_settings", "msgspec", "zmq", "entrypoints", "httpx", "huggingface_hub"}
ABSENT |= {"jinja2", "re2", "rich", "starlette", "tokenizers", "transformers", "uvicorn"}
UNWANTED = set() if "TRITON_INTERPRET" in os.environ else {"triton", "flashinfer"}


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r} (a test took it away)", name=name)
        return ModuleSpec(name, self) if name in UNWANTED else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise ImportError(f"{module.__name__} is imported where nobody chose it")


sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    out = folder / "out.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "gpu" / "run.py"),
        "--tiny",
        "--seconds",
        "3600",
        "--out",
        str(out),
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["problems"] == []
    return found


def rows(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [row for section in document["sections"] for row in section["rows"] if key in row]


def test_every_section_comes_to_its_end(document: dict[str, Any]) -> None:
    assert [section["title"] for section in document["sections"] if section["outcome"] != "done"] == []
    assert all(section["rows"] for section in document["sections"])


def test_each_kind_of_row_is_there(document: dict[str, Any]) -> None:
    assert {row["limit"] for row in rows(document, "limit")} == {"read", "copy", "matrix"}
    assert {row["model"] for row in rows(document, "decode")} == {"llama-tiny", "qwen-tiny"}
    for key in ("decode", "prefill", "kernel"):
        assert all(row["seconds"] > 0 for row in rows(document, key))
    tested = {row["conformance"] for row in rows(document, "check") if row["outcome"] == "passed"}
    assert {"attention.torch", "ops.torch"} <= tested
    assert "torch+torch" in {row["setup"] for row in rows(document, "sameness")}


def test_what_it_needs_is_small_enough_to_travel() -> None:
    files = [file for place in ("core", "plugins", "benchmarks/gpu") for file in (ROOT / place).rglob("*")]
    kept = [file for file in files if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".so"]
    assert sum(file.stat().st_size for file in kept) < 40 * 2**20
