"""A BERT-family config as one checked record, with the defaults that transformers has for each architecture.

No torch. Every refusal is an UnsupportedModel that names the config entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jackfield.hookspecs import Pooling, UnsupportedModel
from jackfield.layers.config_entries import (
    read_activation,
    read_architecture,
    read_count,
    read_dtype,
    read_eps,
    read_flag,
    refuse_quantised,
)
from jackfield_models_encoder.outputs import classification, embedding


@dataclass(frozen=True, kw_only=True)
class Family:
    """prefix       of the encoder's tensors in a checkpoint with a head; one without may leave it out
    classifies   it gives logits of labels, else an embedding
    head         names of the layers of the classification head, behind the first token's state
    padded       positions are counted from behind the padding token's id
    """

    prefix: str
    classifies: bool
    head: tuple[str, ...] = ()
    padded: bool = False


_BERT_HEAD = ("bert.pooler.dense", "classifier")
_ROBERTA_HEAD = ("classifier.dense", "classifier.out_proj")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "BertModel": Family(prefix="bert.", classifies=False),
        "BertForSequenceClassification": Family(prefix="bert.", classifies=True, head=_BERT_HEAD),
        **{
            f"{name}Model": Family(prefix="roberta.", classifies=False, padded=True)
            for name in ("Roberta", "XLMRoberta")
        },
        **{
            f"{name}ForSequenceClassification": Family(
                prefix="roberta.", classifies=True, head=_ROBERTA_HEAD, padded=True
            )
            for name in ("Roberta", "XLMRoberta")
        },
    }
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the model's code needs.

    max_position    rows of the position table; first_position: the row of a text's first token
    modes           embedding: which poolings make the vector, one behind the other; see `outputs`
    pooling         what the runtime is told of them
    """

    architecture: str
    family: Family
    vocab_size: int
    type_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_position: int
    first_position: int
    eps: float
    activation: str
    dtype: str
    modes: tuple[str, ...]
    pooling: Pooling

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def max_context(self) -> int:
        return self.max_position - self.first_position


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Raises UnsupportedModel."""
    architecture = read_architecture(config, FAMILIES)
    family = FAMILIES[architecture]
    refuse_quantised(config)
    for key in ("is_decoder", "add_cross_attention"):
        if read_flag(config, key, False):
            raise UnsupportedModel(f"{key}: this model code is for encoders, which see all of a text")
    positions = config.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise UnsupportedModel(f"position_embedding_type {positions!r} is not supported; known: absolute")
    hidden_size, num_heads = read_count(config, "hidden_size"), read_count(config, "num_attention_heads")
    if hidden_size % num_heads:
        raise UnsupportedModel(f"hidden_size {hidden_size} is not a multiple of {num_heads} num_attention_heads")
    max_position = read_count(config, "max_position_embeddings", 512)
    first = read_count(config, "pad_token_id", 1, least=0) + 1 if family.padded else 0
    if first >= max_position:
        raise UnsupportedModel(
            f"max_position_embeddings {max_position} leaves no position behind pad_token_id {first - 1}"
        )
    modes: tuple[str, ...] = ()
    if family.classifies:
        pooling = classification(config)
    else:
        modes, pooling = embedding(config, hidden_size)
    return Settings(
        architecture=architecture,
        family=family,
        vocab_size=read_count(config, "vocab_size"),
        type_vocab_size=read_count(config, "type_vocab_size", 2),
        hidden_size=hidden_size,
        intermediate_size=read_count(config, "intermediate_size"),
        num_layers=read_count(config, "num_hidden_layers"),
        num_heads=num_heads,
        max_position=max_position,
        first_position=first,
        eps=read_eps(config, "layer_norm_eps", 1e-12),
        activation=read_activation(config, default="gelu"),
        dtype=read_dtype(config),
        modes=modes,
        pooling=pooling,
    )
