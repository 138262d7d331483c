"""How the worker suite makes workers: alone, or on a tiny random checkpoint with the installed attention, operators, model
code and loader that a run would take."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jackfield.hookspecs import KVLayout, ModelWorker, Shard, WorkerStack
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.implementations import named_arguments
from jackfield.stack.loading.load import INLINE, LoadedStack, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.choice import priority
from jackfield.stack.selection.layouts import known_layouts
from jackfield.stack.selection.single import select_one
from jackfield.testing.checkpoints import Stored, safetensors_bytes
from jackfield.testing.conformance.device import ComputingConformance, usable
from jackfield.testing.conformance.model_rig import resolve
from jackfield.testing.tiny_models import TINY, reference_model, tiny_config, weights_of
from jackfield.testing.worker_driver import WorkerDriver

ARCHITECTURE = "LlamaForCausalLM"
CONTEXT, VOCAB = TINY["max_position_embeddings"], TINY["vocab_size"]


class WorkerRig(ComputingConformance):
    """`device` and the first dtype of the manifest are the run's."""

    kind = "worker"
    _model: ClassVar[tuple[dict[str, Any], Any] | None] = None
    _companions: ClassVar[dict[tuple[Any, ...], LoadedStack]] = {}

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def runs_a_model(self) -> bool:
        return bool(self.manifest().needs)

    def worker(self, **changes: Any) -> ModelWorker:
        """Made by the plugin's hook; changes: fields of `WorkerContext`."""
        dtype = changes.get("dtype", self.dtypes()[0])
        fields: dict[str, Any] = {
            "shard": Shard(),
            "device": self.here(),
            "dtype": dtype,
            "seed": 0,
            "page_size": 4,
            "max_running": 6,
            "max_total_tokens": 1024,
            "max_context": CONTEXT,
            "max_tokens": 256,
            "vocab_size": VOCAB,
            "eos_ids": (2,),
            "stack": self.worker_stack(dtype, bool(changes.get("deterministic"))) if self.runs_a_model() else None,
        }
        made: ModelWorker = self.make(**{**fields, **changes})
        return made

    def driver(self, *, seed: int = 0, **changes: Any) -> WorkerDriver:
        return WorkerDriver(self.worker(**changes), seed=seed)

    @classmethod
    def reference(cls) -> tuple[dict[str, Any], Any]:
        """Config and transformers' model of the checkpoint that model-running workers load."""
        if cls._model is None:
            if importlib.util.find_spec("transformers") is None:
                cls.cannot_run("transformers, the reference, cannot be imported: pip install transformers")
            config = tiny_config(ARCHITECTURE, {"tie_word_embeddings": True})
            WorkerRig._model = (config, reference_model(ARCHITECTURE, config))
        assert cls._model is not None
        return cls._model

    def worker_stack(self, dtype: str = "float32", deterministic: bool = False) -> WorkerStack:
        """What the core would hand it: the highest of each kind that fits."""

        def computes(row: PluginRow) -> bool:
            return usable(row, self.here(), dtype, deterministic=deterministic)

        config, reference = self.reference()
        path = self.folder / "checkpoint"
        if not path.exists():
            path.mkdir()
            (path / "config.json").write_text(json.dumps(config))
            stored = {
                one.name: Stored(dtype=one.dtype, shape=one.shape, rows=one.parts["data"])
                for one in weights_of(reference)
            }
            (path / "model.safetensors").write_bytes(safetensors_bytes(stored))
        model = self._companion("model", _lists("architectures", ARCHITECTURE))
        attention = self._companion("attention", computes, dtype, deterministic)
        ops = self._companion("ops", computes, dtype, deterministic)
        loader = self._companion("loader", _lists("files", "*.safetensors"))
        source = loader.make("loader", path=path)
        entry = model.models()[ARCHITECTURE]
        describe = resolve(entry.shape)
        chosen = attention.plugin("attention").selected
        return WorkerStack(
            source=source,
            config=source.config(),
            shape=describe(**named_arguments(describe, {"config": source.config(), "shard": Shard()})),
            model=entry,
            layout=self._layout(chosen.manifest.layouts[0]),
            attention=dict.fromkeys(("prefill", "decode"), (chosen.name, attention.maker("attention"))),
            ops=ops.maker("ops"),
            attention_features=dict.fromkeys(("prefill", "decode"), frozenset(chosen.manifest.features)),
            ops_features=frozenset(ops.plugin("ops").selected.manifest.features),
            ops_encodings=frozenset(ops.plugin("ops").selected.manifest.encodings or ("plain",)),
        )

    @staticmethod
    @cache
    def _layout(name: str) -> KVLayout:
        return known_layouts(discover())[name]

    def _companion(self, kind: str, fits: Callable[[PluginRow], bool], *run: Any) -> LoadedStack:
        """Loaded once a class for each kind of run."""
        if "_companions" not in vars(type(self)):
            type(self)._companions = {}
        key = (kind, *run)
        if key not in self._companions:
            self._companions[key] = self._load_companion(kind, fits)
        return self._companions[key]

    def _load_companion(self, kind: str, fits: Callable[[PluginRow], bool]) -> LoadedStack:
        rows: list[PluginRow] = [row for row in discover().rows(kind) if row.status is Status.OK and fits(row)]
        if not rows:
            self.cannot_run(f"this worker needs a plugin of kind {kind}, and none that fits is installed")
        best = max(rows, key=priority)
        options: Mapping[str, Any] = {}
        return load_stack(ResolvedStack(plugins=(select_one(discover(), kind, best.name, dict(options)),)), INLINE)


def _lists(key: str, entry: str) -> Callable[[PluginRow], bool]:
    """Whether a plugin's manifest lists an entry under a key."""
    return lambda row: row.manifest is not None and entry in getattr(row.manifest, key)
