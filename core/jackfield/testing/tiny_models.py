"""Tiny random models of transformers, the reference of model code, and their weights as a checkpoint would give them.

Needs the package transformers, which is imported when a model is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from jackfield.hookspecs import Weight
from jackfield.model_executor.dtypes import dtype_name

TINY: Mapping[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
"""Entries that most configs have. One that an architecture lacks is left out."""


def tiny_config(architecture: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The architecture's default config, made tiny, with `entries` laid over it, as config.json would hold it. Raises what
    transformers raises where it refuses them, and AttributeError if it does not know the architecture."""
    made = _config(architecture, entries)
    return {**json.loads(made.to_json_string()), "architectures": [architecture]}


def reference_model(architecture: str, config: Mapping[str, Any], *, seed: int = 0, scale: float = 0.3) -> Any:
    """transformers' model with random weights, larger than the usual start, so that attention is not flat and a wrong
    position shows."""
    made = _model(architecture, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * scale
            parameter.copy_(drawn + (1.0 if "norm" in name else 0.0))
    return made


def in_dtype(reference: Any, architecture: str, config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """The same weights in another dtype. `model.to(dtype)` would round the rotary frequencies too."""
    made = _model(architecture, config, dtype=dtype)
    made.load_state_dict({name: tensor.to(dtype) for name, tensor in reference.state_dict().items()})
    return made


def weights_of(reference: Any) -> Iterator[Weight]:
    """What a checkpoint of the model holds; a head that is tied is left out, as transformers leaves it out."""
    tied = bool(reference.config.tie_word_embeddings)
    for name, tensor in reference.state_dict().items():
        if not (tied and name == "lm_head.weight"):
            yield weight(name, tensor)


def weight(name: str, tensor: torch.Tensor) -> Weight:
    """One plain tensor."""
    raw: np.ndarray[Any, np.dtype[np.uint8]] = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
    return Weight(
        name=name, encoding="plain", dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape), parts={"data": raw}
    )


def reference_logits(reference: Any, ids: list[int]) -> torch.Tensor:
    """float32 [n, vocab] of one sequence; of a model that does not generate its last hidden states, [n, hidden]."""
    with torch.inference_mode():
        return told(reference, reference_body(reference)(torch.tensor([ids])))


def reference_body(reference: Any) -> Any:
    """What is called for `told`: the model, but without a head that makes one answer of a whole text."""
    return reference if reference.can_generate() else getattr(reference, reference.base_model_prefix, reference)


def told(reference: Any, answer: Any) -> torch.Tensor:
    """Logits, or the last hidden states of a model that does not generate, of the first sequence of an answer."""
    found: torch.Tensor = answer.logits if reference.can_generate() else answer.last_hidden_state
    return found[0].float()


def _config(architecture: str, entries: Mapping[str, Any]) -> Any:
    import transformers

    config_class = getattr(transformers, architecture).config_class
    known = config_class().to_dict()
    tiny = {key: value for key, value in TINY.items() if key in known}
    return config_class(**{**tiny, **entries})


def _model(architecture: str, config: Mapping[str, Any], dtype: torch.dtype = torch.float32) -> Any:
    import transformers

    model_class = getattr(transformers, architecture)
    own = model_class.config_class(**{key: value for key, value in config.items() if key != "architectures"})
    if not model_class.can_generate():
        # A pooler beside an embedding model is not what makes its embeddings.
        more = {"add_pooling_layer": False} if architecture.endswith("Model") else {}
        return model_class._from_config(own, attn_implementation="eager", dtype=dtype, **more).eval()
    auto: Any = transformers.AutoModelForCausalLM
    return auto.from_config(own, attn_implementation="eager", dtype=dtype).eval()
