"""The worker suite passes a worker that is right, and each fault is caught by the check that is named after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from jackfield.testing.conformance import WorkerConformance
from tests.conformance import worker_faults as faults
from tests.conformance.checks import failing
from tests.conformance.worker_faults import Wrapped

ON_THE_SIMULATED: dict[type[Wrapped], str] = {
    faults.OffersTooManySlots: "test_limits",
    faults.GivesLongIntegers: "test_results",
    faults.SamplesMiddleChunks: "test_results",
    faults.DependsOnChunks: "test_chunks",
    faults.DependsOnTheBatch: "test_batches",
    faults.MissesSharedPrefixes: "test_shared_prefix",
    faults.RemembersRows: "test_rows_again",
    faults.ForgetsOutputs: "test_reopened",
    faults.TakesThePlaceholder: "test_relay",
    faults.PromisesTooMuch: "test_deterministic",
    faults.ValuesAboveZero: "test_logprobs",
    faults.NoEntriesForChunks: "test_prompt_logprobs",
    faults.IgnoresMasks: "test_token_masks",
    faults.SaysYesToAll: "test_control",
    faults.ClosesOnce: "test_close",
}
ON_A_MODEL: dict[type[Wrapped], str] = {
    faults.IsAlwaysWrong: "test_reference",
    faults.DrawsByRow: "test_seeds",
    faults.DrawsWithoutSeeds: "test_seeds",
    faults.IgnoresPenalties: "test_penalties",
    faults.IgnoresBias: "test_logit_bias",
    faults.CountsFromTheReopening: "test_min_new_tokens",
    faults.MovesKVToTheNextSlot: "test_kv_move",
    faults.PoolsMiddleChunks: "test_pooling",
    faults.ForgetsTheLength: "test_pooling",
}


class Faulty(WorkerConformance):
    wrapper: ClassVar[type[Wrapped]] = Wrapped
    where: ClassVar[Path]

    def __init__(self) -> None:
        self.folder = self.where

    @classmethod
    def make(cls, **fields: Any) -> Any:
        return cls.wrapper(super().make(**fields), fields)


def suite(wrapper: type[Wrapped], plugin: str, where: Path) -> type[Faulty]:
    return type(wrapper.__name__, (Faulty,), {"wrapper": wrapper, "plugin": plugin, "where": where})


BASE = ("test_loads", "test_imports_no_torch")
CHECKS = tuple(name for name in dir(WorkerConformance) if name.startswith("test_") and name not in BASE)


@pytest.mark.goal_row(35)
def test_a_wrapper_without_a_fault_passes(tmp_path: Path) -> None:
    assert failing(suite(Wrapped, "simulated", tmp_path), CHECKS) == {}


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", ON_THE_SIMULATED, ids=lambda fault: fault.__name__)
def test_a_fault_is_caught_by_the_check_of_its_name(fault: type[Wrapped], tmp_path: Path) -> None:
    check = ON_THE_SIMULATED[fault]
    assert check in failing(suite(fault, "simulated", tmp_path), [check])


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", ON_A_MODEL, ids=lambda fault: fault.__name__)
def test_a_fault_of_a_worker_that_runs_a_model_is_caught(fault: type[Wrapped], tmp_path: Path) -> None:
    assert ON_A_MODEL[fault] in failing(suite(fault, "torch", tmp_path), [ON_A_MODEL[fault]])


def test_every_check_has_a_fault_that_it_catches() -> None:
    assert {*ON_THE_SIMULATED.values(), *ON_A_MODEL.values()} == set(CHECKS)
