"""The attention suite passes what is right, and each fault is caught by the check that is named after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from jackfield.hookspecs import NHD_PAGED, AttentionBatch, AttentionContext, KVLayout
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.testing.attention_batches import PreparedCase
from jackfield.testing.conformance import AttentionConformance
from tests.conformance import attention_faults as faults
from tests.conformance.checks import failing
from tests.conformance.plain_attention import PlainAttention

ROW = ManifestRow(
    kind="attention",
    name="plain",
    devices=("cpu", "cuda"),
    dtypes=("float32", "bfloat16"),
    layouts=("nhd-paged",),
    features=("window", "soft_cap", "mixed", "non_causal", "graph", "tree_mask", "kv:bfloat16", "kv:fp8_e5m2"),
)


class Plain(AttentionConformance):
    """The suite on a class of this test instead of an installed plugin."""

    plugin = "plain"
    backend_type: ClassVar[type[PlainAttention]] = PlainAttention
    row: ClassVar[ManifestRow] = ROW

    @classmethod
    def manifest(cls) -> ManifestRow:
        return cls.row

    @classmethod
    def make(cls, **fields: Any) -> Any:
        return cls.backend_type(AttentionContext(kind="attention", name="plain", instance="plain", **fields))

    def layouts(self) -> list[KVLayout]:
        return [NHD_PAGED]

    def refused_batch(self, prepared: PreparedCase) -> AttentionBatch | None:
        most = self.backend_type.most_rows
        if most > 40:
            return None
        return replace(prepared.batch, host=replace(prepared.batch.host, q_lens=prepared.batch.host.q_lens.repeat(9)))


CHECKS = tuple(name for name in vars(AttentionConformance) if name.startswith("test_"))
FAULTS: dict[type[PlainAttention], str] = {
    faults.WindowOneTooFar: "test_window",
    faults.ReadsBeforeTheWindow: "test_window",
    faults.ForgetsTheSoftCap: "test_soft_cap",
    faults.AlwaysCausal: "test_non_causal",
    faults.WrongHeadMapping: "test_numbers",
    faults.IgnoresTheScale: "test_numbers",
    faults.LeavesTheLastRowOut: "test_numbers",
    faults.ReadsUnallocatedPages: "test_numbers",
    faults.AddsUpInTheRunsDtype: "test_every_dtype",
    faults.RefusesMixed: "test_mixed",
    faults.ForgetsTheTree: "test_tree_mask",
    faults.TreesHideThePrompt: "test_tree_mask",
    faults.DraftsDoNotSeeThemselves: "test_tree_mask",
    faults.IgnoresKvSource: "test_layers_of_several_kinds",
    faults.AsksTheOtherGroupsTable: "test_layers_of_several_kinds",
    faults.TrustsUpperBounds: "test_upper_bounds",
    faults.WritesPaddingIntoARealSlot: "test_kv_writes",
    faults.WritesInTheWrongOrder: "test_kv_writes",
    faults.WritesThoughWritten: "test_kv_written_before",
    faults.SeesNewTokensAsTheyCame: "test_kv_dtype",
    faults.LetsLargeKeysOverflow: "test_kv_dtype_writes",
    faults.RowsShareAMask: "test_rows_apart",
    faults.KeepsTheOldMemory: "test_bound_again",
    faults.PlansShareScratch: "test_plans_alive",
    faults.RemembersBatchesByTheirTensors: "test_buffers_used_again",
    faults.SortsTheBatchInPlace: "test_inputs_untouched",
    faults.ScalesQueriesInPlace: "test_inputs_untouched",
    faults.ReadsLengthsInPlan: "test_plan_does_not_wait",
    faults.FreezesTheFirstBatch: "test_graph",
    faults.RefreshReadsLengths: "test_graph",
    faults.TrustsUpperBoundsInGraphs: "test_graph",
    faults.PadsIntoTheLastSlot: "test_graph",
    faults.GraphsShareAPlan: "test_graphs_side_by_side",
    faults.NeedsBothPhases: "test_one_phase",
    faults.ForgetsTheMaximum: "test_large_scores",
    faults.TakesTokensForNeighbours: "test_parts_of_one_product",
    faults.RefusesWithAnotherError: "test_batch_fault",
    faults.WritesBeforeItRefuses: "test_batch_fault",
}


def suite(backend: type[PlainAttention], row: ManifestRow = ROW) -> type[Plain]:
    return type(backend.__name__, (Plain,), {"backend_type": backend, "row": row})


@pytest.mark.goal_row(35)
def test_what_is_right_passes() -> None:
    assert failing(suite(PlainAttention), CHECKS) == {}


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_caught_by_the_check_of_its_name(fault: type[PlainAttention]) -> None:
    assert FAULTS[fault] in failing(suite(fault), [FAULTS[fault]])


@pytest.mark.parametrize("odd", [faults.PlansLate, faults.InFloat64], ids=lambda odd: odd.__name__)
def test_what_is_odd_and_right_passes(odd: type[PlainAttention]) -> None:
    names = "large_scores every_dtype kv_writes kv_written_before rows_apart bound_again plans_alive buffers_used_again"
    assert (
        failing(suite(odd), [f"test_{name}" for name in f"{names} inputs_untouched one_phase batch_fault".split()])
        == {}
    )


@pytest.mark.goal_row(35)
def test_bits_that_depend_on_the_batch_are_caught() -> None:
    row = replace(ROW, features=(*ROW.features, "batch_invariant:cpu:float32"))
    assert "test_deterministic" in failing(suite(faults.DependsOnTheBatch, row), ["test_deterministic"])


def test_every_check_has_a_fault_that_it_catches() -> None:
    assert set(FAULTS.values()) | {"test_deterministic"} == set(CHECKS)


def test_what_is_not_claimed_is_never_sent() -> None:
    """A backend that knows nothing beyond the minimum passes, because it is asked for nothing else."""

    class Minimal(PlainAttention):
        def __init__(self, context: AttentionContext) -> None:
            super().__init__(context)
            asked = {(one.window, one.soft_cap, one.causal) for one in context.layers}
            assert asked == {(None, None, True)}, f"undeclared features were sent: {asked}"
            assert context.dtype == "float32"
            assert not context.deterministic

        def plan(self, batch: AttentionBatch) -> Any:
            assert batch.mode.value != "mixed"
            assert batch.mask is None
            return super().plan(batch)

    row = replace(ROW, features=(), dtypes=("float32",))
    assert failing(suite(Minimal, row), CHECKS) == {}
