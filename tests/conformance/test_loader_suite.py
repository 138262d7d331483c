"""The loader suite catches each fault by the check that is named after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from jackfield.hookspecs import ModelSourceError, Shard, TokenizerFiles, Weight
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.testing.conformance import LoaderConformance
from jackfield_models_loaders.safetensors_source import SafetensorsSource
from tests.conformance.checks import failing
from tests.unit.stack.distributions import Site, plugin_row

ROW = ManifestRow(kind="loader", name="plain", files=("*.safetensors", "*.safetensors.index.json"))


class OneDictForAll(SafetensorsSource):
    def config(self) -> dict[str, Any]:
        if not hasattr(self, "known"):
            self.known = super().config()
        return self.known


class ForgetsOverrides(SafetensorsSource):
    def __init__(self, path: Path, overrides: Any = None) -> None:
        super().__init__(path)


class ReplacesWholeObjects(SafetensorsSource):
    def config(self) -> dict[str, Any]:
        return {**super().config(), **self._overrides}


class ForgetsTheTemplate(SafetensorsSource):
    def tokenizer(self) -> TokenizerFiles:
        return replace(super().tokenizer(), chat_template=None)


class LosesATensor(SafetensorsSource):
    def weights(self, shard: Shard) -> Iterator[Weight]:
        return iter(list(super().weights(shard))[:-1])


class TransposesShapes(SafetensorsSource):
    def weights(self, shard: Shard) -> Iterator[Weight]:
        return (replace(one, shape=one.shape[::-1]) for one in super().weights(shard))


class CutsItsOwnPart(SafetensorsSource):
    def weights(self, shard: Shard) -> Iterator[Weight]:
        return (one for i, one in enumerate(super().weights(shard)) if i % shard.tp_size == shard.tp_rank)


class OneBufferForAll(SafetensorsSource):
    """Reads each tensor into the memory of the one before."""

    memory: ClassVar[Any] = np.zeros(1 << 20, dtype=np.uint8)

    def weights(self, shard: Shard) -> Iterator[Weight]:
        for one in super().weights(shard):
            data = self.memory[: one.parts["data"].size]
            data[:] = one.parts["data"]
            yield replace(one, parts={"data": data})
            self.memory[:8] += 1


class ChecksTooLate(SafetensorsSource):
    """A generator: nothing is looked at before the first tensor is asked for."""

    def weights(self, shard: Shard) -> Iterator[Weight]:
        yield from super().weights(shard)


class NamesNoFile(SafetensorsSource):
    def weights(self, shard: Shard) -> Iterator[Weight]:
        try:
            return super().weights(shard)
        except ModelSourceError as error:
            raise ModelSourceError("the checkpoint is damaged") from error


class AnotherError(SafetensorsSource):
    def weights(self, shard: Shard) -> Iterator[Weight]:
        try:
            return super().weights(shard)
        except ModelSourceError as error:
            raise ValueError(str(error)) from error


class ForgivesAMissingFile(SafetensorsSource):
    def __init__(self, path: Path, overrides: Any = None) -> None:
        super().__init__(path if path.exists() else path.parent / "single", overrides)


FAULTS: dict[type[SafetensorsSource], str] = {
    OneDictForAll: "test_config",
    ForgetsOverrides: "test_overrides",
    ReplacesWholeObjects: "test_overrides",
    ForgetsTheTemplate: "test_tokenizer",
    LosesATensor: "test_weights",
    TransposesShapes: "test_weights",
    CutsItsOwnPart: "test_shards",
    OneBufferForAll: "test_weights_outlive_their_source",
    ChecksTooLate: "test_truncated",
    NamesNoFile: "test_truncated",
    AnotherError: "test_spoilt",
    ForgivesAMissingFile: "test_missing",
}
CHECKS = tuple(name for name in vars(LoaderConformance) if name.startswith("test_"))


class Plain(LoaderConformance):
    plugin = "plain"
    source_type: ClassVar[type[SafetensorsSource]] = SafetensorsSource

    @classmethod
    def manifest(cls) -> ManifestRow:
        return ROW

    @classmethod
    def make(cls, **fields: Any) -> Any:
        return cls.source_type(fields["path"], fields["overrides"])


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_caught_by_the_check_of_its_name(fault: type[SafetensorsSource], tmp_path: Path) -> None:
    suite = type(fault.__name__, (Plain,), {"source_type": fault})
    assert FAULTS[fault] in failing(suite, [FAULTS[fault]], tmp_path=tmp_path)


@pytest.mark.goal_row(35)
def test_torch_in_a_tokenizer_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path / "site")
    source = (
        "from jackfield.hookspecs import hookimpl\n"
        "from jackfield_models_loaders.safetensors_source import SafetensorsSource\n"
        "class Heavy(SafetensorsSource):\n"
        "    def tokenizer(self):\n"
        "        import torch\n"
        "        return super().tokenizer()\n"
        "@hookimpl\n"
        "def jackfield_model_source(context):\n"
        "    return Heavy(context.path, context.overrides)\n"
    )
    site.add("acme-heavy", plugin_row("loader", "heavy", files=["*.safetensors"]), sources={"heavy": source})
    monkeypatch.syspath_prepend(str(site.folder))
    suite = type("Heavy", (LoaderConformance,), {"plugin": "heavy"})
    assert "torch" in failing(suite, ["test_no_torch"], tmp_path=tmp_path)["test_no_torch"]


def test_every_check_has_a_fault_that_it_catches() -> None:
    assert {*FAULTS.values(), "test_no_torch"} == set(CHECKS)
