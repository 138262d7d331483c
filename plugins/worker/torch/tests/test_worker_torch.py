"""The plugin is registered under its name, and its hook makes the worker of the core."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import jackfield_worker_torch
from jackfield.hookspecs import Shard, WorkerContext
from jackfield.testing.conformance import WorkerConformance
from jackfield_worker_torch.torch import jackfield_model_worker


class TestConformance(WorkerConformance):
    plugin = "torch"


def test_the_manifest_and_the_entry_point_agree() -> None:
    (row,) = tomllib.loads(Path(jackfield_worker_torch.__file__).with_name("plugin.toml").read_text())["plugin"]
    (point,) = [p for p in entry_points(group="jackfield.worker") if p.value.startswith("jackfield_worker_torch.")]
    assert (point.name, point.value) == (row["name"], "jackfield_worker_torch.torch")
    assert row["needs"] == ["attention", "ops", "model", "loader"]


def test_the_hook_makes_the_cores_worker() -> None:
    """A context without a stack reaches TorchWorker, which says what it lacks."""
    context = WorkerContext(
        kind="worker",
        name="torch",
        instance="mine",
        shard=Shard(),
        device="cpu",
        dtype="float32",
        seed=0,
        page_size=1,
        max_running=1,
        max_total_tokens=16,
        max_context=16,
        max_tokens=16,
        vocab_size=8,
    )
    with pytest.raises(ValueError, match="worker 'mine' runs a model"):
        jackfield_model_worker(context)
