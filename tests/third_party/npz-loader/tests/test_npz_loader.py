"""Archives written by NumPy, read back; broken ones are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from npz_loader.source import NpzSource

from jackfield.hookspecs import ModelSourceError, Shard


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Some"], "rope": {"theta": 1, "factor": 2}}))
    weights = {"model.norm.weight": np.arange(4, dtype=np.float32), "b": np.ones((2, 3), dtype=np.float16)}
    np.savez(tmp_path / "model.npz", **weights)
    np.savez_compressed(tmp_path / "more.npz", head=np.array([[0x3F80, 0x4000]], dtype=np.uint16))
    return tmp_path


def test_every_tensor_of_every_archive(checkpoint: Path) -> None:
    found = {weight.name: weight for weight in NpzSource(checkpoint, {}).weights(Shard())}
    assert {name: (weight.dtype, weight.shape) for name, weight in found.items()} == {
        "model.norm.weight": ("float32", (4,)),
        "b": ("float16", (2, 3)),
        "head": ("bfloat16", (1, 2)),
    }
    assert found["model.norm.weight"].parts["data"].view(np.float32).tolist() == [0, 1, 2, 3]
    one = NpzSource(checkpoint / "more.npz", {})
    assert [weight.name for weight in one.weights(Shard())] == ["head"]


def test_overrides_are_merged_and_leave_nothing_behind(checkpoint: Path) -> None:
    source = NpzSource(checkpoint, {"rope": {"factor": 3}})
    assert source.config()["rope"] == {"theta": 1, "factor": 3}
    assert source.config() is not source.config()


@pytest.mark.parametrize("what", ["cut", "dtype", "order", "none", "text"])
def test_what_is_broken_is_told_before_the_first_tensor(checkpoint: Path, what: str) -> None:
    file = checkpoint / "model.npz"
    match what:
        case "cut":
            file.write_bytes(file.read_bytes()[:100])
        case "dtype":
            np.savez(file, a=np.arange(3))
        case "order":
            np.savez(file, a=np.asfortranarray(np.ones((2, 3), dtype=np.float32)))
        case "text":
            file.write_text("no archive")
        case "none":
            for archive in checkpoint.glob("*.npz"):
                archive.unlink()
    with pytest.raises(ModelSourceError, match=r"model\.npz" if what != "none" else "no .npz archive"):
        NpzSource(checkpoint, {}).weights(Shard())
