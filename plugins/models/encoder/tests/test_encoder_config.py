"""What the config and the files beside it decide, what is refused by name, and what a checkpoint's tensors may be called."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.hookspecs import Pooling, Shard, UnsupportedModel
from jackfield.testing.tiny_models import weights_of
from jackfield_models_encoder.settings import FAMILIES, read_settings
from jackfield_models_encoder.shape import describe

BASE: dict[str, Any] = {
    "architectures": ["BertModel"],
    "vocab_size": 60,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
LABELS = {**BASE, "architectures": ["BertForSequenceClassification"]}


def files(*modules: str, **pooling: Any) -> dict[str, Any]:
    return {**BASE, "sentence_transformers_files": {"modules": list(modules), "pooling": pooling}}


def test_what_the_runtime_is_told() -> None:
    shape = describe(BASE, Shard())
    assert (shape.generates, shape.features, shape.max_context) == (False, {"non_causal"}, 64)
    assert not any(layer.causal for layer in shape.layers)
    assert shape.pooling == Pooling(kind="embedding", width=32, normalize=True)


def test_roberta_counts_positions_behind_its_padding() -> None:
    for name in FAMILIES:
        shape = describe({**BASE, "architectures": [name], "pad_token_id": 1}, Shard())
        assert shape.max_context == (64 if name.startswith("Bert") else 62)


@pytest.mark.parametrize(
    ("config", "modes", "width", "normalize"),
    [
        (files("Transformer", "Pooling", "Normalize", pooling_mode_mean_tokens=True), ("mean",), 32, True),
        (files("Transformer", "Pooling", pooling_mode_cls_token=True), ("cls",), 32, False),
        (
            files("Transformer", "Pooling", pooling_mode_mean_tokens=True, pooling_mode_max_tokens=True),
            ("max", "mean"),
            64,
            False,
        ),
        (files("Transformer", "Pooling", pooling_mode="mean"), ("mean",), 32, False),
    ],
)
def test_the_pooling_of_the_files(config: dict[str, Any], modes: tuple[str, ...], width: int, normalize: bool) -> None:
    settings = read_settings(config)
    assert (settings.modes, settings.pooling.width, settings.pooling.normalize) == (modes, width, normalize)


@pytest.mark.parametrize(
    ("entries", "labels", "activation"),
    [
        ({}, ("LABEL_0", "LABEL_1"), "softmax"),
        ({"id2label": {"0": "no", "1": "yes"}}, ("no", "yes"), "softmax"),
        ({"id2label": {"0": "score"}}, ("score",), "sigmoid"),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, ("LABEL_0", "LABEL_1", "LABEL_2"), "sigmoid"),
        ({"num_labels": 1, "problem_type": "regression"}, ("LABEL_0",), "identity"),
        (
            {"num_labels": 1, "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            ("LABEL_0",),
            "identity",
        ),
        (
            {"num_labels": 1, "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"},
            ("LABEL_0",),
            "sigmoid",
        ),
    ],
)
def test_labels_and_what_makes_their_scores(entries: dict[str, Any], labels: tuple[str, ...], activation: str) -> None:
    pooling = read_settings({**LABELS, **entries}).pooling
    assert (pooling.kind, pooling.labels, pooling.activation, pooling.pairs) == (
        "classification",
        labels,
        activation,
        True,
    )


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({**BASE, "architectures": ["GPT2Model"]}, "architectures"),
        ({**BASE, "is_decoder": True}, "is_decoder"),
        ({**BASE, "position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({**BASE, "num_attention_heads": 5}, "num_attention_heads"),
        ({**BASE, "hidden_act": "no_such"}, "hidden_act"),
        ({**BASE, "quantization_config": {"quant_method": "x"}}, "quantization_config"),
        ({**BASE, "hidden_size": "32"}, "hidden_size"),
        ({**BASE, "dtype": "int8"}, "dtype"),
        ({**BASE, "architectures": ["RobertaModel"], "pad_token_id": 64}, "max_position_embeddings"),
        (files("Transformer", "Pooling", "Dense", pooling_mode_cls_token=True), "Dense"),
        (files("Transformer"), "no Pooling"),
        (files("Transformer", "Pooling", pooling_mode_no_such=True), "pooling_mode_no_such"),
        (files("Transformer", "Pooling", pooling_mode="no_such"), "no_such"),
        (files("Transformer", "Pooling"), "switches no pooling_mode on"),
        (files("Transformer", "Pooling", pooling_mode_cls_token=True, include_prompt=False), "include_prompt"),
        ({**LABELS, "num_labels": 0}, "num_labels"),
        ({**LABELS, "id2label": ["a"]}, "id2label"),
        ({**LABELS, "sentence_transformers": {"activation_fn": "torch.nn.ReLU"}}, "activation_fn"),
    ],
)
def test_what_is_not_done_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        read_settings(config)


def test_ranks_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="one rank"):
        describe(BASE, Shard(tp_size=2))


def test_matryoshka() -> None:
    assert read_settings({**BASE, "matryoshka_dimensions": [8, 16]}).pooling.dimensions == (8, 16)
    assert read_settings({**BASE, "is_matryoshka": True}).pooling.matryoshka
    assert not read_settings(BASE).pooling.matryoshka


def test_names_of_old_checkpoints_and_tensors_that_are_not_needed(rig: Any) -> None:
    from dataclasses import replace

    reference, config = rig.checkpoint("BertModel")
    given = list(weights_of(reference))
    assert any(one.name.startswith("pooler.") for one in given)
    old = [
        replace(
            one,
            name="bert."
            + one.name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
        )
        for one in given
    ]
    head = replace(given[0], name="cls.predictions.decoder.weight")
    _, report = rig.build(config, [*old, head])
    assert report.ok, report.problems()
    _, report = rig.build(config, [*given[1:], replace(given[0], name="embeddings.no_such")])
    assert report.missing == (given[0].name,)
    assert report.unexpected == ("embeddings.no_such",)
