"""The model suite catches each fault by the check that is named after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from jackfield.hookspecs import ModelEntry
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.testing.conformance import ModelConformance
from tests.conformance.checks import failing

RIGHT = ModelEntry(shape="jackfield_models_llama.shape:describe", model="jackfield_models_llama.model:Llama")
ROW = ManifestRow(kind="model", name="llama", dtypes=("float32", "bfloat16"), architectures=("MistralForCausalLM",))


class Faulty(ModelConformance):
    plugin = "llama"
    tp_sizes = (2,)
    entry: ClassVar[ModelEntry] = RIGHT
    architecture: ClassVar[str] = "LlamaForCausalLM"

    @classmethod
    def manifest(cls) -> ManifestRow:
        return ROW

    @classmethod
    def entries(cls) -> Mapping[str, ModelEntry]:
        return {cls.architecture: cls.entry}


MODELS = {
    "TurnsNothing": "test_prefill",
    "CountsFromZero": "test_chunks_and_decode",
    "ForgetsBiases": "test_variations",
    "KnowsOneEpsilon": "test_variations",
    "LosesBits": "test_low_precision",
    "IgnoresEmbeds": "test_embeds",
    "SaysNothingIsMissing": "test_load_report",
    "WantsTheEmbeddingFirst": "test_any_order",
    "SumsNothing": "test_ranks",
}
SHAPES = {
    "imports_torch": "test_describe_imports_no_torch",
    "counts_a_byte_an_element": "test_weight_bytes",
    "forgets_the_window": "test_shape",
    "counts_other_positions": "test_shape",
    "fails_instead_of_refusing": "test_refusals",
}
POOLS = {"MixesPrompts": "test_pooling"}
HERE = "tests.conformance.model_faults"


def suite(
    *, shape: str = RIGHT.shape, model: str = RIGHT.model, architecture: str = "LlamaForCausalLM"
) -> type[Faulty]:
    entry = ModelEntry(shape=shape, model=model)
    return type("Faulty", (Faulty,), {"entry": entry, "architecture": architecture})


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", MODELS)
def test_a_fault_of_a_model_is_caught_by_the_check_of_its_name(fault: str) -> None:
    found = failing(suite(model=f"{HERE}:{fault}"), [MODELS[fault], "test_shape"])
    assert list(found) == [MODELS[fault]]


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", SHAPES)
def test_a_fault_of_describe_is_caught_by_the_check_of_its_name(fault: str) -> None:
    found = failing(suite(shape=f"{HERE}:{fault}", architecture="MistralForCausalLM"), [SHAPES[fault], "test_embeds"])
    assert list(found) == [SHAPES[fault]]


@pytest.mark.goal_row(35)
@pytest.mark.parametrize("fault", POOLS)
def test_a_fault_of_pooling_is_caught_by_the_check_of_its_name(fault: str) -> None:
    assert failing(suite(shape=f"{HERE}:pools"), [POOLS[fault]]) == {}
    assert list(failing(suite(shape=f"{HERE}:pools", model=f"{HERE}:{fault}"), [POOLS[fault], "test_prefill"])) == [
        POOLS[fault]
    ]


@pytest.mark.goal_row(35)
def test_an_unknown_activation_that_is_taken_for_another_is_caught() -> None:
    wrong = suite(shape=f"{HERE}:describes_any_activation", model=f"{HERE}:TakesAnyActivation")
    found = failing(wrong, ["test_refusals", "test_variations", "test_prefill"])
    assert "hidden_act 'no_such_thing' was accepted" in found["test_refusals"]
    assert "hidden_act" in found["test_variations"]
    assert "test_prefill" not in found


def test_every_check_has_a_fault_that_it_catches() -> None:
    checks = {name for name in dir(ModelConformance) if name.startswith("test_")}
    assert {*MODELS.values(), *SHAPES.values(), *POOLS.values()} == checks - {"test_loads", "test_imports_no_torch"}
