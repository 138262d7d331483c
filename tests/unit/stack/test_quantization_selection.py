"""`--quantization` in the resolution: what stays packed, which ops plugin can do what is asked, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.stack.discovery.catalogue import Catalogue
from jackfield.stack.discovery.manifest import parse_row
from jackfield.stack.resolved import WeightForm
from tests.unit.stack.catalogues import catalogue, facts, reason, refused, resolved, row

PACKS = row("ops", "fast", distribution="jackfield-cpu", priority=50, encodings=("plain", "q4_1", "q8_0"))
INT8 = row(
    "ops", "int8", distribution="jackfield-cpu", priority=1, features=("quantization:w8a8_int8", "quantization:fp4")
)


def form(rows: Catalogue, encodings: tuple[str, ...] = ("q4_1", "q8_0"), **args: Any) -> WeightForm:
    model = facts(weight_encodings=list(encodings))
    found = resolved(rows, model=model, **{"dtype": "bfloat16", **args}).stack.weights
    assert found is not None
    return found


def trusted(*rows: Any) -> Catalogue:
    return catalogue(*rows)


def test_packed_weights_stay_packed_where_the_operators_multiply_them() -> None:
    found = form(trusted(PACKS), plugin_allow=("jackfield-cpu",))
    assert (found.name, found.packed, found.strict, found.quantization) == ("gguf", ("q4_1", "q8_0"), False, None)
    assert found.reason == "ops 'fast' multiplies q4_1 and q8_0 as it lies in the file"
    some = form(trusted(PACKS), ("q6_k", "q8_0"), plugin_allow=("jackfield-cpu",))
    assert (some.name, some.packed) == ("gguf", ("q8_0",))
    assert some.reason.endswith("; q6_k is decoded")


def test_they_are_decoded_where_nobody_can_where_nobody_wants_and_where_the_references_numbers_are_asked_for() -> None:
    plain = form(catalogue())
    assert (plain.name, plain.packed) == ("none", ())
    assert plain.reason == "ops 'torch' takes plain weights only, so q4_1 and q8_0 is decoded"
    rows = trusted(PACKS)
    assert form(rows, ops="fast", quantization="none").reason.startswith(
        "--quantization none: q4_1 and q8_0 is decoded"
    )
    exact = form(rows, ops="fast", dtype="float32")
    assert exact.packed == ()
    assert "float32 asks for the reference's numbers" in exact.reason
    assert form(rows, ops="fast", dtype="float32", quantization="gguf").packed == ("q4_1", "q8_0")
    assert form(rows, (), ops="fast").reason == "the checkpoint's weights are plain"


def test_gguf_takes_the_plugin_that_can_and_is_strict() -> None:
    rows = trusted(PACKS)
    found = form(rows, quantization="gguf", plugin_allow=("jackfield-cpu",))
    assert (found.name, found.strict) == ("gguf", True)
    told = refused(rows, model=facts(weight_encodings=["q4_1"]), quantization="gguf", ops="torch")
    assert "--quantization gguf asks for products with q4_1, and it takes plain only; fast would do" in told
    told = refused(rows, model=facts(weight_encodings=["q6_k", "q8_0"]), quantization="gguf", ops="fast")
    assert "products with q6_k, and it takes plain, q4_1, q8_0 only; no installed ops plugin would do" in told
    told = refused(rows, model=facts(weight_encodings=None), quantization="gguf")
    assert "--quantization gguf keeps packed weights packed, and config.json has none" in told


def test_int8_goes_to_a_plugin_that_declares_it() -> None:
    rows = trusted(INT8, PACKS)
    model = facts(weight_encodings=["q4_1"])
    found = resolved(rows, model=model, quantization="W8A8-INT8", plugin_allow=("jackfield-cpu",))
    assert [plugin.name for plugin in found.stack.of("ops")] == ["int8"]
    assert found.stack.weights is not None
    assert found.stack.weights.quantization == found.stack.weights.name == "w8a8_int8"
    assert found.stack.weights.packed == ()
    assert "the checkpoint's q4_1 is decoded first" in found.stack.weights.reason
    assert "needs 'quantization:w8a8_int8', which it does not declare; int8 would do" in reason(found, "ops", "fast")
    told = refused(rows, model=model, quantization="w8a8_int8", ops="fast")
    assert "--quantization w8a8_int8 needs 'quantization:w8a8_int8', which it does not declare; int8 would do" in told
    assert "no installed ops plugin would do" in refused(catalogue(), quantization="w8a8_int8")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("w8a8_int4", "there is no quantisation 'w8a8_int4'; did you mean 'w8a8_int8'"),
        ("gguff", "did you mean 'gguf'"),
        ("awq", "valid: auto, none, gguf, fp4, w8a8_int8"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(asked: str, told: str) -> None:
    assert told in refused(trusted(INT8), quantization=asked)
    assert "--quantization" in refused(trusted(INT8), quantization=asked)


def test_a_plugins_own_quantisation_can_be_named() -> None:
    found = resolved(trusted(INT8), quantization="fp4", ops="int8")
    assert found.stack.weights is not None
    assert found.stack.weights.quantization == "fp4"


def test_a_worker_without_operators_has_no_form_of_weights() -> None:
    rows = catalogue(row("worker", "sim", distribution="jackfield-worker-simulated"))
    assert resolved(rows, worker="sim").stack.weights is None
    assert "worker 'sim' uses no ops plugin" in refused(rows, worker="sim", quantization="gguf")


@pytest.mark.parametrize("feature", ["quantization", "quantization:", "quantization:a:b", "quantisation:w8a8_int8"])
def test_a_feature_that_is_written_wrongly_breaks_the_manifest(feature: str) -> None:
    table = {"kind": "ops", "name": "x", "summary": "s", "contract": {"ops": "0.5"}, "features": [feature]}
    problems = parse_row(table).problems
    assert any("quantization" in problem for problem in problems)
