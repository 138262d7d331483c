"""The models that are measured, as Hugging Face configs, and the counts that their limits are made of. No torch.

No checkpoint is read: the weights are random numbers of these shapes (`weights.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LLAMA_8B: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN_06B: Mapping[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 32768,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
_TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 512,
}
_SMALL = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 4096,
    "max_position_embeddings": 4096,
}

MODELS: Mapping[str, Mapping[str, Any]] = {
    "llama-8b": LLAMA_8B,
    "qwen-0.6b": QWEN_06B,
    "llama-small": {**LLAMA_8B, **_SMALL},
    "qwen-small": {**QWEN_06B, **_SMALL},
    "llama-tiny": {**LLAMA_8B, **_TINY},
    "qwen-tiny": {**QWEN_06B, **_TINY},
}
"""The small ones are for sameness, the tiny ones for a CPU."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What one step has to read and compute, at the least.

    matrix_elements    elements of all matrices that a token is multiplied with, the vocabulary's included
    vocab_elements     those of the vocabulary's
    kv_elements        elements of K and V of one token
    attended           multiply-adds of one query token with one key, over all heads and layers, times 2 for k and v
    """

    matrix_elements: int
    vocab_elements: int
    kv_elements: int
    attended: int

    def decode_bytes(self, rows: int, context: int, itemsize: int) -> int:
        """Each matrix once, and each row's keys and values once. context: tokens of each row."""
        return (self.matrix_elements + rows * context * self.kv_elements) * itemsize

    def decode_flops(self, rows: int, context: int) -> int:
        return 2 * rows * (self.matrix_elements + context * self.attended)

    def prefill_flops(self, new: int, cached: int) -> int:
        """One row of `new` tokens behind `cached` ones; logits of its last token alone."""
        pairs = new * cached + new * (new + 1) // 2
        return 2 * (new * (self.matrix_elements - self.vocab_elements) + self.vocab_elements + pairs * self.attended)


def counts(config: Mapping[str, Any]) -> Counts:
    layers, head = config["num_hidden_layers"], config["head_dim"]
    vocab = config["vocab_size"] * config["hidden_size"]
    blocks = sum(shape[0] * shape[1] for name, shape in tensors(config) if len(shape) == 2 and ".layers." in name)
    return Counts(
        matrix_elements=blocks + vocab,
        vocab_elements=vocab,
        kv_elements=layers * config["num_key_value_heads"] * head * 2,
        attended=layers * config["num_attention_heads"] * head * 2,
    )


def tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the checkpoint's tensors; of Llama's family and Qwen3's."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (hidden,)
        if config["architectures"] == ["Qwen3ForCausalLM"]:
            for norm in ("q_norm", "k_norm"):
                yield f"{prefix}self_attn.{norm}.weight", (head,)
        for stem, out, into in (
            ("self_attn.q_proj", heads, hidden),
            ("self_attn.k_proj", kv_heads, hidden),
            ("self_attn.v_proj", kv_heads, hidden),
            ("self_attn.o_proj", hidden, heads),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            yield f"{prefix}{stem}.weight", (out, into)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)
