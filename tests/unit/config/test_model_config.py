"""A model's configuration as the runtime reads it, and the dtype of a run."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.device import DeviceDescription
from jackfield.config.dtype import resolve_dtype
from jackfield.config.embedded import CONFIG_SOURCE, embedded_config
from jackfield.config.errors import ConfigurationError
from jackfield.config.model_config import ModelConfig

BASE: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "max_position_embeddings": 64}


def make(
    changes: dict[str, Any] | None = None,
    *,
    overrides: dict[str, Any] | None = None,
    context_length: int | None = None,
) -> ModelConfig:
    merged = {**BASE, **(changes or {})}
    merged = {key: value for key, value in merged.items() if value is not ...}
    return ModelConfig.from_hf(merged, source="m/config.json", overrides=overrides, context_length=context_length)


def test_the_embedded_model() -> None:
    config = ModelConfig.from_hf(embedded_config(), source=CONFIG_SOURCE)
    assert (config.architecture, config.vocab_size, config.context_length) == ("LlamaForCausalLM", 49152, 8192)
    assert (config.dtype, config.eos_token_ids, config.bos_token_id, config.pad_token_id) == ("bfloat16", (2,), 1, 2)
    assert config.default_sampling_params == {}
    assert config.notes == ()


def test_the_embedded_configuration_belongs_to_its_caller() -> None:
    embedded_config()["vocab_size"] = 1
    assert embedded_config()["vocab_size"] == 49152


@pytest.mark.parametrize("name", ["architectures", "vocab_size", "max_position_embeddings"])
def test_a_missing_entry_names_the_file_and_the_entry(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make({name: ...})
    assert "m/config.json" in caught.value.message
    assert name in caught.value.message


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": []},
        {"architectures": "LlamaForCausalLM"},
        {"architectures": [3]},
        {"vocab_size": 0},
        {"vocab_size": True},
        {"vocab_size": "100"},
        {"max_position_embeddings": -1},
        {"max_position_embeddings": "64"},
        {"eos_token_id": "2"},
        {"eos_token_id": [2, -7]},
        {"eos_token_id": True},
        {"eos_token_id": [2, 10**9]},
        {"bos_token_id": [1]},
        {"generation_config": [1]},
        {"generation_config": {"temperature": "hot"}},
        {"generation_config": {"temperature": float("nan")}},
        {"generation_config": {"top_k": 2.5}},
        {"generation_config": {"top_p": True}},
        {"dtype": 16},
        {"rope_scaling": "yes"},
        {"rope_scaling": {"rope_type": "linear", "factor": "2"}},
    ],
)
def test_a_malformed_entry_names_the_file(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"m/config\.json"):
        make(changes)


def test_the_context_may_be_shortened_but_not_lengthened() -> None:
    assert make(context_length=32).context_length == 32
    assert make(context_length=64).context_length == 64
    with pytest.raises(ConfigurationError) as caught:
        make(context_length=65)
    assert "65" in caught.value.message
    assert "64" in caught.value.message


def test_a_model_that_does_not_say_its_context_takes_the_one_that_is_named() -> None:
    config = make({"max_position_embeddings": ...}, context_length=1000)
    assert (config.context_length, config.derived_context_length) == (1000, None)


@pytest.mark.parametrize(
    ("rope", "length"),
    [
        ({"rope_scaling": None}, 64),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 64),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 256),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 128),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, 128),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}, 256),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}}, 64),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8}}, 64),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 8.0}}, 64),
        ({"max_sequence_length": 50}, 50),
    ],
)
def test_rope_scaling_and_other_names_of_the_context(rope: dict[str, Any], length: int) -> None:
    assert make(rope).context_length == length


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        (2, None, (2,)),
        ([2, 3], None, (2, 3)),
        (2, [3, 2], (2, 3)),
        (None, 5, (5,)),
        (-1, 5, (5,)),
        (None, None, ()),
        (0, None, (0,)),
    ],
)
def test_end_tokens_are_merged(config: Any, generation: Any, expected: tuple[int, ...]) -> None:
    entries = {"eos_token_id": config, "generation_config": {"eos_token_id": generation}}
    assert make(entries).eos_token_ids == expected


def test_sampling_defaults_come_from_the_generation_config() -> None:
    generation = {"temperature": 0.6, "top_p": 0.9, "top_k": 50, "max_length": 10, "do_sample": True}
    assert make({"generation_config": generation}).default_sampling_params == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 50,
    }
    assert make({"generation_config": {**generation, "do_sample": False}}).default_sampling_params == {}
    penalised = {**generation, "repetition_penalty": 1.1, "do_sample": False}  # greedy search has it too
    assert make({"generation_config": penalised}).default_sampling_params == {"repetition_penalty": 1.1}
    assert make({"generation_config": {"temperature": 0.6}}).default_sampling_params == {"temperature": 0.6}


def test_a_default_that_is_not_applied_is_said() -> None:
    config = make({"generation_config": {"frequency_penalty": 1.1, "num_beams": 1, "typical_p": None}})
    assert len(config.notes) == 1
    assert "frequency_penalty = 1.1" in config.notes[0]


def test_overrides_are_merged_deeply_and_change_what_is_derived() -> None:
    config = make(
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1.0}, "eos_token_id": 2},
        overrides={"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "eos_token_id": [7], "new": None},
    )
    assert config.hf["rope_parameters"] == {"rope_type": "linear", "rope_theta": 1.0, "factor": 2.0}
    assert config.context_length == 128
    assert config.eos_token_ids == (7,)
    assert config.hf["new"] is None


def test_the_given_configuration_is_not_changed() -> None:
    given = {**BASE, "rope_parameters": {"factor": 1.0}}
    ModelConfig.from_hf(given, source="x", overrides={"rope_parameters": {"factor": 2.0}})
    assert given["rope_parameters"] == {"factor": 1.0}


def test_a_text_config_inside() -> None:
    text = {"vocab_size": 100, "max_position_embeddings": 64, "eos_token_id": 3, "dtype": "float16"}
    config = ModelConfig.from_hf({"architectures": ["X"], "text_config": text}, source="x")
    assert (config.vocab_size, config.context_length, config.eos_token_ids, config.dtype) == (100, 64, (3,), "float16")


@pytest.mark.parametrize(
    ("entries", "dtype"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, "bfloat16"),
        ({"dtype": "half"}, "float16"),
        ({}, None),
    ],
)
def test_the_checkpoints_dtype_in_old_and_new_layouts(entries: dict[str, Any], dtype: str | None) -> None:
    assert make(entries).dtype == dtype


def device(kind: str = "cpu", capability: tuple[int, int] | None = None) -> DeviceDescription:
    return DeviceDescription(
        type=kind, name="some device", available_memory=1, total_memory=1, cores=1, capability=capability
    )


@pytest.mark.parametrize(
    ("requested", "checkpoint", "expected", "said"),
    [
        ("auto", "bfloat16", "bfloat16", "checkpoint's dtype"),
        ("auto", "float32", "float32", "checkpoint's dtype"),
        ("auto", "float16", "float16", "--dtype bfloat16 or float32 may be faster"),
        ("auto", None, "float32", "names no dtype"),
        ("float32", "bfloat16", "float32", "named by --dtype; the checkpoint is bfloat16"),
        ("float32", "float8_e4m3fn", "float32", "named by --dtype"),
    ],
)
def test_the_dtype_of_a_run_has_a_reason(requested: str, checkpoint: str | None, expected: str, said: str) -> None:
    dtype, reason = resolve_dtype(requested, checkpoint, device())
    assert dtype == expected
    assert said in reason


def test_a_checkpoint_dtype_that_cannot_be_computed_in_asks_for_a_choice() -> None:
    with pytest.raises(ConfigurationError, match=r"float8_e4m3fn.*--dtype"):
        resolve_dtype("auto", "float8_e4m3fn", device())


@pytest.mark.parametrize("requested", ["auto", "bfloat16"])
def test_an_old_gpu_without_bfloat16_is_refused_with_a_way_out(requested: str) -> None:
    with pytest.raises(ConfigurationError, match=r"8\.0.*7\.5.*--dtype float16"):
        resolve_dtype(requested, "bfloat16", device("cuda", (7, 5)))
    assert resolve_dtype(requested, "bfloat16", device("cuda", (9, 0)))[0] == "bfloat16"


def test_how_long_a_text_an_encoder_takes() -> None:
    """RoBERTa's positions begin behind its padding; an embedding model's text length goes before its positions."""
    roberta = {"model_type": "xlm-roberta", "pad_token_id": 1, "max_position_embeddings": 514}
    assert make(roberta).context_length == 512
    files = {"sentence_transformers_files": {"modules": ["Transformer"], "max_seq_length": 32}}
    assert make(files).context_length == 32
    assert make({**roberta, "sentence_transformers_files": {"max_seq_length": 1000}}).context_length == 512
    for broken in (
        {**roberta, "pad_token_id": None},
        {**roberta, "pad_token_id": 513},
        {"sentence_transformers_files": {"max_seq_length": -1}},
    ):
        with pytest.raises(ConfigurationError, match=r"pad_token_id|max_seq_length"):
            make(broken)
