"""A Gemma 3 config as one checked record, with the defaults that transformers has. Knows rope by `rope`, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, ValidationError

from jackfield.hookspecs import UnsupportedModel

WINDOW, FULL = "sliding_attention", "full_attention"

# Hugging Face's names -> the contract's
ACTIVATIONS: Mapping[str, str] = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}

Count = Annotated[int, Field(gt=0, lt=2**31)]  # a config is untrusted, and sizes end in 32 bit counts
Layers = Annotated[int, Field(gt=0, le=4096)]
Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _plain_dtype(value: object) -> object:
    return value.removeprefix("torch.") if isinstance(value, str) else value


class Settings(BaseModel):
    """What the model's code needs, by the names of config.json. Whole-model numbers, before any rank's share.

    What stands here as None alone changes the numbers of a model and is not done.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    architectures: list[Literal["Gemma3ForCausalLM"]] = Field(min_length=1)
    dtype: Annotated[Literal["float32", "float16", "bfloat16"] | None, BeforeValidator(_plain_dtype)] = Field(
        default=None, validation_alias=AliasChoices("dtype", "torch_dtype")
    )
    hidden_size: Count
    num_hidden_layers: Layers
    intermediate_size: Count = 9216
    num_attention_heads: Count = 8
    num_key_value_heads: Count = 4
    head_dim: Annotated[Count, Field(multiple_of=2)] = 256
    vocab_size: Count = 262208
    max_position_embeddings: Count = 131072
    rms_norm_eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-6
    hidden_activation: str = "gelu_pytorch_tanh"
    query_pre_attn_scalar: Number = 256.0
    sliding_window: Count | None = 4096
    sliding_window_pattern: Count = 6
    layer_types: list[Literal["sliding_attention", "full_attention"]] | None = None
    attention_bias: bool = False
    tie_word_embeddings: bool = True
    final_logit_softcapping: PositiveFloat | None = None
    attn_logit_softcapping: None = None
    use_bidirectional_attention: Literal[False] | None = None
    quantization_config: None = None

    @property
    def windowed(self) -> tuple[bool, ...]:
        """A bool a layer: whether it looks back a window only (and has the window layers' rope)."""
        if self.layer_types is not None:
            return tuple(kind == WINDOW for kind in self.layer_types)
        return tuple((layer + 1) % self.sliding_window_pattern != 0 for layer in range(self.num_hidden_layers))

    @property
    def window(self) -> int | None:
        """A window at least as long as any sequence hides nothing, so it is none: any attention backend will do."""
        if not any(self.windowed) or self.sliding_window is None or self.sliding_window >= self.max_position_embeddings:
            return None
        return self.sliding_window

    @property
    def activation(self) -> str:
        return ACTIVATIONS[self.hidden_activation]


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Raises UnsupportedModel with every entry that is wrong."""
    try:
        settings = Settings.model_validate(dict(config))
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, each['loc']))} {each['input']!r} is not supported: {each['msg']}"
            if each["type"] != "missing"
            else f"{'.'.join(map(str, each['loc']))} is missing from the config"
            for each in error.errors()
        ]
        raise UnsupportedModel("; ".join(wrong)) from error
    if settings.hidden_activation not in ACTIVATIONS:
        raise UnsupportedModel(
            f"hidden_activation {settings.hidden_activation!r} is not supported; known: {', '.join(ACTIVATIONS)}"
        )
    if settings.num_attention_heads % settings.num_key_value_heads:
        raise UnsupportedModel(
            f"num_key_value_heads: {settings.num_attention_heads} heads cannot be grouped evenly over "
            f"{settings.num_key_value_heads} KV heads"
        )
    if settings.layer_types is not None and len(settings.layer_types) != settings.num_hidden_layers:
        raise UnsupportedModel(
            f"layer_types lists {len(settings.layer_types)} layers, num_hidden_layers says {settings.num_hidden_layers}"
        )
    if settings.sliding_window is None and any(settings.windowed):
        raise UnsupportedModel(
            "sliding_window is null, and layer_types has layers of 'sliding_attention', which need it"
        )
    return settings
