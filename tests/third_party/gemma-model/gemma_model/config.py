"""The entries of a config.json that this code follows; all others that would change its numbers are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from jackfield.hookspecs import UnsupportedModel

Activation = Literal["gelu_pytorch_tanh", "gelu"]  # the releases say gelu and mean the other


class Config(BaseModel):
    model_config = ConfigDict(strict=True)

    architectures: list[Literal["GemmaForCausalLM"]]
    dtype: Literal["float32", "float16", "bfloat16"] | None = Field(
        default=None, validation_alias=AliasChoices("dtype", "torch_dtype")
    )
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    hidden_act: Activation = "gelu_pytorch_tanh"
    hidden_activation: Activation | None = None
    use_bidirectional_attention: Literal[False] | None = None
    quantization_config: None = None


def read_config(entries: Mapping[str, Any]) -> Config:
    """Raises UnsupportedModel with every entry that is wrong."""
    try:
        config = Config.model_validate(dict(entries))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise UnsupportedModel("; ".join(wrong)) from error
    if config.num_attention_heads % config.num_key_value_heads:
        raise UnsupportedModel("num_key_value_heads: they do not divide num_attention_heads")
    return config
