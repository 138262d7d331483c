"""`--enable-deterministic-inference` in the resolution: only plugins that declare it for the device and dtype."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.stack.discovery.catalogue import Catalogue
from jackfield.stack.discovery.manifest import parse_row
from tests.unit.stack.catalogues import catalogue, resolved, row

HERE = ("batch_invariant:cpu:float32", "batch_invariant:cuda:bfloat16")


def rows(*more: Any, attention: tuple[str, ...] = HERE, ops: tuple[str, ...] = HERE) -> Catalogue:
    """The standard catalogue with a torch worker, attention and ops that make these claims."""
    kept = [
        r
        for r in catalogue()
        if (r.kind, r.name) not in {("attention", "torch"), ("ops", "torch"), ("worker", "torch")}
    ]
    ours = [
        row("attention", "torch", priority=10, features=attention),
        row("ops", "torch", priority=10, features=ops),
        row(
            "worker", "torch", priority=10, needs=("attention", "ops", "model", "loader"), features=("batch_invariant",)
        ),
    ]
    return Catalogue(tuple(sorted([*kept, *ours, *more], key=lambda r: (r.kind, r.name, r.distribution))))


def refused(catalogue: Catalogue, **args: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolved(catalogue, **{"enable_deterministic_inference": True, "dtype": "float32", **args})
    return str(caught.value)


def test_plugins_that_declare_it_are_chosen() -> None:
    better = row("attention", "fast", priority=50)
    assert resolved(rows(better)).stack.one("attention", "decode").name == "fast"
    resolution = resolved(rows(better), enable_deterministic_inference=True, dtype="float32")
    assert resolution.stack.one("attention", "decode").name == "torch"
    (why,) = [r.reason for r in resolution.stack.rejected if r.name == "fast"]
    assert "batch_invariant" in why
    assert "torch would do" in why


def test_a_named_plugin_without_it_is_refused_and_those_that_would_do_are_named() -> None:
    text = refused(rows(row("attention", "fast")), attention_backend="fast")
    assert "--attention-backend: attention plugin 'fast'" in text
    assert "--enable-deterministic-inference needs 'batch_invariant'" in text
    assert "on cpu in float32; torch would do" in text
    text = refused(rows(row("ops", "fused")), ops="fused")
    assert "ops plugin 'fused'" in text
    assert "torch would do" in text


def test_a_worker_must_hand_it_on() -> None:
    text = refused(rows(row("worker", "other", needs=("attention", "ops", "model", "loader"))), worker="other")
    assert "worker plugin 'other'" in text


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
def test_a_claim_is_for_one_device_and_dtype(dtype: str) -> None:
    text = refused(rows(), dtype=dtype)
    assert "on cpu in bfloat16" in text
    assert "no installed ops plugin would do" in text


def test_a_bare_claim_is_for_all() -> None:
    bare = ("batch_invariant",)
    resolution = resolved(rows(attention=bare, ops=bare), enable_deterministic_inference=True)
    assert resolution.args.dtype == "bfloat16"


def test_one_plugin_serves_both_phases() -> None:
    text = refused(rows(row("attention", "other", features=HERE)), decode_attention_backend="other")
    assert "one plugin must serve both phases" in text
    assert "'other' serves decode" in text
    assert resolved(
        rows(), enable_deterministic_inference=True, dtype="float32", decode_attention_backend="torch"
    ).stack.one("attention", "prefill")


def test_a_claim_of_another_form_is_a_mistake_in_the_manifest() -> None:
    table = {"kind": "ops", "name": "x", "summary": "s", "contract": {"ops": "0.5"}}
    assert not parse_row({**table, "features": [*HERE, "batch_invariant"]}).problems
    (problem,) = parse_row({**table, "features": ["batch_invariant:float32"]}).problems
    assert "batch_invariant:<device>:<dtype>" in problem


@pytest.mark.goal_row(6)
def test_a_misspelt_feature_is_a_mistake_in_the_manifest_and_another_one_is_not() -> None:
    table = {
        "kind": "attention",
        "name": "x",
        "summary": "s",
        "contract": {"attention": "1.0"},
        "layouts": ["nhd-paged"],
    }
    assert not parse_row({**table, "features": ["soft_cap", "mixed", "window_sinks"]}).problems
    (problem,) = parse_row({**table, "features": ["soft_cap", "windw"]}).problems
    assert problem == "the feature 'windw' is unknown; did you mean 'window'?"
