"""What the safetensors loader makes of sentence-transformers' files, and of buffers that old checkpoints store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import ModelSourceError, Shard
from jackfield.testing.checkpoints import safetensors_bytes, tensors, write_text_side
from jackfield_models_loaders.safetensors_source import SafetensorsSource

MODULES = [
    {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def checkpoint(folder: Path, modules: Any, **files: Any) -> SafetensorsSource:
    write_text_side(folder)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors()))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return SafetensorsSource(folder)


def test_modules_pooling_and_length(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, MODULES, sentence_bert_config={"max_seq_length": 256})
    assert source.config()["sentence_transformers_files"] == {
        "modules": ["Transformer", "Pooling", "Normalize"],
        "pooling": {"pooling_mode_mean_tokens": True},
        "max_seq_length": 256,
    }


def test_without_them_nothing_is_told(tmp_path: Path) -> None:
    write_text_side(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors()))
    assert "sentence_transformers_files" not in SafetensorsSource(tmp_path).config()


@pytest.mark.parametrize("place", ["..", "../elsewhere", "/elsewhere", "", 5, "a\\b"])
def test_a_list_of_modules_does_not_point_out_of_its_folder(tmp_path: Path, place: Any) -> None:
    source = checkpoint(tmp_path, [{"path": place, "type": "x.Pooling"}])
    with pytest.raises(ModelSourceError, match="no folder beside it"):
        source.config()


@pytest.mark.parametrize("modules", [{}, [5], "x"])
def test_a_broken_list_is_told(tmp_path: Path, modules: Any) -> None:
    source = checkpoint(tmp_path, modules)
    with pytest.raises(ModelSourceError, match="not a list of modules"):
        source.config()


def test_counting_buffers_are_no_weights(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 stores `embeddings.position_ids`, as int64."""
    write_text_side(tmp_path)
    given = safetensors_bytes(tensors())
    length = int.from_bytes(given[:8], "little")
    header = json.loads(given[8 : 8 + length])
    data = given[8 + length :]
    ids = np.arange(5, dtype="<i8").tobytes()
    for name, place in (("embeddings.position_ids", 0), ("model.counts", 1)):
        more = {name: {"dtype": "I64", "shape": [1, 5], "data_offsets": [len(data), len(data) + len(ids)]}}
        text = json.dumps({**header, **more}).encode()
        (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data + ids)
        if place:
            with pytest.raises(ModelSourceError, match=r"model.counts.*dtype I64"):
                SafetensorsSource(tmp_path).weights(Shard())
        else:
            assert {one.name for one in SafetensorsSource(tmp_path).weights(Shard())} == set(tensors())
