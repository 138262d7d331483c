"""The table of model architectures that GGUF files may hold: one row each, everything else reads from the row.

To add an architecture, add a row. The names on the left are llama.cpp's, those on the right Hugging Face's; both end
in ".weight" or ".bias".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How one `general.architecture` reads in Hugging Face's terms.

    hf_architecture, model_type   as in config.json
    tensors          stem of a tensor outside the layers -> Hugging Face's
    layer_tensors    stem of a tensor within `blk.<n>.` -> Hugging Face's within `model.layers.<n>.`
    permuted         layer stems whose rows lie in the interleaved rotary order, -> metadata key (after the architecture's
                     prefix) that gives the number of heads; the source brings them back into halves
    derived          tensors that only repeat what the configuration says; they are read for the config and not given
    activation       `hidden_act`, or `hidden_activation` with `gemma`
    bias_entries     config entry -> layer stem: the entry is True if the file has that stem's bias
    gemma            the config is Gemma 3's, and norms hold their whole weight where Hugging Face has the weight less 1
    """

    hf_architecture: str
    model_type: str
    tensors: Mapping[str, str]
    layer_tensors: Mapping[str, str]
    permuted: Mapping[str, str]
    derived: frozenset[str]
    activation: str
    bias_entries: Mapping[str, str]
    gemma: bool = False


_TENSORS = MappingProxyType({"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"})

_LAYER_TENSORS = MappingProxyType(
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
)


_GEMMA_TENSORS = MappingProxyType(
    {
        **_LAYER_TENSORS,
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
)


def _llama_like(hf_architecture: str, model_type: str) -> Architecture:
    return Architecture(
        hf_architecture=hf_architecture,
        model_type=model_type,
        tensors=_TENSORS,
        layer_tensors=_LAYER_TENSORS,
        # llama.cpp rotates neighbouring pairs, Hugging Face the two halves of a head; its converter reorders the rows
        permuted=MappingProxyType({"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}),
        derived=frozenset({"rope_freqs.weight"}),
        activation="silu",
        bias_entries=MappingProxyType({"attention_bias": "attn_q", "mlp_bias": "ffn_gate"}),
    )


_QWEN3_LAYER_TENSORS = MappingProxyType(
    {**_LAYER_TENSORS, "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
)


def _qwen(
    hf_architecture: str, model_type: str, *, layer_tensors: Mapping[str, str], attention_bias: bool
) -> Architecture:
    return Architecture(
        hf_architecture=hf_architecture,
        model_type=model_type,
        tensors=_TENSORS,
        layer_tensors=layer_tensors,
        permuted=MappingProxyType({}),  # llama.cpp rotates the two halves of these models' heads, as Hugging Face does
        derived=frozenset(),
        activation="silu",
        bias_entries=MappingProxyType({"attention_bias": "attn_q"} if attention_bias else {}),
    )


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": _llama_like("LlamaForCausalLM", "llama"),
        # llama.cpp's converter writes Mistral models as "llama"; other writers use the model's own name
        "mistral": _llama_like("MistralForCausalLM", "mistral"),
        # Qwen2 always has biases on q, k and v, and no entry that says so
        "qwen2": _qwen("Qwen2ForCausalLM", "qwen2", layer_tensors=_LAYER_TENSORS, attention_bias=False),
        "qwen3": _qwen("Qwen3ForCausalLM", "qwen3", layer_tensors=_QWEN3_LAYER_TENSORS, attention_bias=True),
        "gemma3": Architecture(
            hf_architecture="Gemma3ForCausalLM",
            model_type="gemma3_text",
            tensors=_TENSORS,
            layer_tensors=_GEMMA_TENSORS,
            permuted=MappingProxyType({}),
            derived=frozenset(),
            activation="gelu_pytorch_tanh",
            bias_entries=MappingProxyType({"attention_bias": "attn_q"}),
            gemma=True,
        ),
    }
)
"""`general.architecture` -> its row."""
