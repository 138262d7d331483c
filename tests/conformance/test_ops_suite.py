"""The suite of operators passes what is right, and each fault is caught by the check that is named after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from jackfield.model_executor.dtypes import torch_dtype
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.testing.conformance import OpsConformance
from jackfield.testing.sampling_twin import Draw
from tests.conformance import ops_faults as faults
from tests.conformance.checks import failing
from tests.conformance.ops_faults import PlainOps
from tests.conformance.ops_kv_faults import KV_FAULTS

ROW = ManifestRow(
    kind="ops",
    name="plain",
    devices=("cpu",),
    dtypes=("float32", "bfloat16"),
    features=("batch_invariant", "quantization:int8"),
    encodings=("plain", "q8_0"),
    layouts=("nhd-paged", "hnd-paged"),
)


class Plain(OpsConformance):
    plugin = "plain"
    ops_type: ClassVar[type[PlainOps]] = PlainOps

    @classmethod
    def manifest(cls) -> ManifestRow:
        return ROW

    @classmethod
    def make(cls, **fields: Any) -> Any:
        return cls.ops_type(torch_dtype(fields["dtype"]), fields.get("quantization"))


BASE = ("test_loads", "test_imports_no_torch")
CHECKS = tuple(name for name in dir(OpsConformance) if name.startswith("test_") and name not in BASE)
DRAW = Draw(temperature=1.7, top_k=9, top_p=0.9, min_p=0.02)
FAULTS: dict[type[PlainOps], str] = {
    faults.ForgetsTheBias: "test_linear",
    faults.ForgetsEps: "test_norm",
    faults.ReturnsXForTheSum: "test_norm",
    faults.ShiftsTheTable: "test_embedding",
    faults.KeepsOneBufferForLogits: "test_logits",
    faults.QuantisesToThreeBits: "test_quantization",
    faults.RestoresInLowPrecision: "test_export",
    faults.LooksUpItsNeighbour: "test_looks_up",
    faults.TurnsNeighbours: "test_pre_attention",
    faults.OneGeluForAll: "test_post_attention",
    faults.ForgetsTheNormsBehind: "test_post_attention",
    faults.AttendsToNothing: "test_layers",
    faults.ReducesOnce: "test_row_parallel",
    faults.RoundsInBlocks: "test_deterministic",
    faults.UnpacksWrongly: "test_encodings",
    faults.TakesTheLastOfEquals: "test_sample_greedy",
    faults.DrawsWithItsOwnNumbers: "test_sample_race",
    faults.RenormalisesBetweenFilters: "test_sample_race",
    faults.TopKKeepsOneMore: "test_sample_filters",
    faults.DividesByTinyTemperatures: "test_sample_extremes",
    faults.HidesNaN: "test_sample_broken_rows",
    faults.OneStreamForAll: "test_sample_rows_apart",
    **KV_FAULTS,
}


def suite(ops: type[PlainOps]) -> type[Plain]:
    return type(ops.__name__, (Plain,), {"ops_type": ops})


@pytest.mark.goal_row(35)
def test_what_is_right_passes() -> None:
    assert failing(suite(PlainOps), CHECKS, draw=DRAW) == {}


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_caught_by_the_check_of_its_name(fault: type[PlainOps]) -> None:
    assert FAULTS[fault] in failing(suite(fault), [FAULTS[fault]], draw=DRAW)


def test_keys_and_values_of_a_layout_that_is_not_listed_are_returned() -> None:
    """A provider that writes what its manifest does not list is caught; the same layouts listed, it is right."""
    unlisted = type("Unlisted", (Plain,), {"manifest": classmethod(lambda cls: replace(ROW, layouts=("nhd-paged",)))})
    assert "hnd-paged" in failing(unlisted, ["test_kv_write"], draw=DRAW)["test_kv_write"]


def test_every_check_has_a_fault_that_it_catches() -> None:
    assert set(FAULTS.values()) == set(CHECKS)
