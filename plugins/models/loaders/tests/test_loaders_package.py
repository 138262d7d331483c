"""The distribution: its manifest agrees with its modules, and nothing heavy is needed to open a checkpoint."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import jackfield_models_loaders.gguf
from jackfield.hookspecs import KINDS
from jackfield.testing.conformance import LoaderConformance

PACKAGE = Path(jackfield_models_loaders.gguf.__file__).parent
ROWS = tomllib.loads((PACKAGE / "plugin.toml").read_text())["plugin"]


class TestSafetensors(LoaderConformance):
    plugin = "safetensors"


class TestGguf(LoaderConformance):
    plugin = "gguf"


class TestDummy(LoaderConformance):
    plugin = "dummy"


def test_every_row_has_its_entry_point_and_hook() -> None:
    registered = {
        point.name: point.value
        for point in entry_points(group="jackfield.loader")
        if point.value.startswith("jackfield_models_loaders.")
    }
    assert {row["name"] for row in ROWS} == set(registered) == {"safetensors", "gguf", "dummy"}
    for row in ROWS:
        assert row["kind"] == "loader"
        assert row["contract"] == {"loader": KINDS["loader"].contract_version}
        module = importlib.import_module(registered[row["name"]])
        assert callable(module.jackfield_model_source)
        if "options" in row:
            where, _, name = row["options"].partition(":")
            assert hasattr(importlib.import_module(where), name)


def test_dummy_is_never_chosen_by_looking_at_a_path() -> None:
    assert [row["name"] for row in ROWS if not row.get("files")] == ["dummy"]


@pytest.mark.parametrize("heavy", ["torch", "transformers", "gguf", "safetensors", "tokenizers"])
def test_opening_a_checkpoint_imports_nothing_heavy(make_gguf: Callable[..., Path], heavy: str) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from jackfield.hookspecs import LoaderContext, Shard\n"
        "from jackfield_models_loaders.gguf import jackfield_model_source\n"
        "context = LoaderContext(kind='loader', name='gguf', instance='gguf', path=Path(sys.argv[1]))\n"
        "source = jackfield_model_source(context)\n"
        "source.config(), source.tokenizer(), list(source.weights(Shard()))\n"
        "import jackfield_models_loaders.safetensors_source, jackfield_models_loaders.dummy_source\n"
        "assert sys.argv[2] not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(make_gguf()), heavy], check=True)
