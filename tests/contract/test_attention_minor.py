"""What attention 1.1 brought reaches nobody who was built against 1.0: fields with defaults, methods with a body."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from jackfield.hookspecs import AttentionBackend, AttentionBatch, AttentionContext, GraphShape
from jackfield.stack.discovery.manifest import parse_row
from tests.contract.changes import changes
from tests.contract.facts import facts_of
from tests.contract.record import recorded


class Old(AttentionBackend):
    """Built against 1.0: what was abstract then, and nothing else."""

    def bind(self, kv: Any) -> None: ...

    def plan(self, batch: Any) -> Any: ...

    def attend(self, *given: Any) -> None: ...


def test_the_minor_is_additive() -> None:
    found = changes(recorded("attention")[1, 0], facts_of("attention"))
    assert [change.text for change in found if not change.additive] == []


def test_a_backend_of_the_first_version_is_whole_and_says_what_it_lacks() -> None:
    old, plan, batch = Old(), object(), object()
    calls: dict[str, Any] = {
        "plan_graph": lambda: old.plan_graph(batch, GraphShape(rows=1, max_kv=1)),  # type: ignore[arg-type]
        "in_graph": lambda: old.in_graph(plan),  # type: ignore[arg-type]
        "refresh": lambda: old.refresh(plan, batch),  # type: ignore[arg-type]
    }
    for call in calls.values():
        with pytest.raises(NotImplementedError, match='Old does not do what the feature "graph" promises'):
            call()


@pytest.mark.parametrize(("record", "name"), [(AttentionBatch, "mask"), (AttentionContext, "kv_dtype")])
def test_a_new_field_means_by_default_what_was_true_before(record: type, name: str) -> None:
    (found,) = [field for field in fields(record) if field.name == name]
    assert found.default is None


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        (["graph", "tree_mask", "kv:fp8_e4m3"], None),
        (["kv"], "the feature 'kv' has not the form 'kv:<name>'"),
        (["kv:fp8:e4m3"], "the feature 'kv:fp8:e4m3' has not the form 'kv:<name>'"),
        (["tree_masks"], "the feature 'tree_masks' is unknown; did you mean 'tree_mask'?"),
        (["graphs"], "the feature 'graphs' is unknown; did you mean 'graph'?"),
    ],
)
def test_the_features_are_known(features: list[str], problem: str | None) -> None:
    table = {
        "kind": "attention",
        "name": "x",
        "summary": "s",
        "contract": {"attention": "1.1"},
        "layouts": ["nhd-paged"],
    }
    assert list(parse_row({**table, "features": features}).problems) == ([] if problem is None else [problem])
