"""Shapes by hand; a tiny random checkpoint of transformers through a whole engine, greedy tokens against transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemma_model.shape import describe

from jackfield import Engine
from jackfield.hookspecs import Shard, UnsupportedModel

CONFIG: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "architectures": ["GemmaForCausalLM"],
}


def test_one_key_value_head_is_shared_by_all_ranks() -> None:
    shape = describe(CONFIG, Shard(tp_rank=1, tp_size=2))
    assert [(layer.num_heads, layer.num_kv_heads, layer.head_size) for layer in shape.layers] == [(2, 1, 24)] * 2
    with pytest.raises(UnsupportedModel, match="shared by 3"):
        describe(CONFIG, Shard(tp_size=3))


def test_greedy_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    import torch
    from transformers import GemmaConfig, GemmaForCausalLM

    torch.manual_seed(0)
    reference: Any = GemmaForCausalLM(
        GemmaConfig(**CONFIG, eos_token_id=None, bos_token_id=None, pad_token_id=0)
    ).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.1 if "norm" in name else 0.3))
    reference.save_pretrained(tmp_path)
    prompts = [[5, 9, 77], list(range(3, 40))]
    wanted = []
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt])
            for _ in range(12):
                ids = torch.cat([ids, reference(ids).logits[:, -1:].argmax(-1)], dim=1)
            wanted.append(ids[0, len(prompt) :].tolist())
    settings: dict[str, Any] = {"skip_tokenizer_init": True, "dtype": "float32", "max_total_tokens": 1024}
    with Engine(model_path=str(tmp_path), model_impl="gemma", topology="inline", **settings) as engine:
        sampling = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
        answers = engine.generate(input_ids=prompts, sampling_params=sampling)
    assert [answer["output_ids"] for answer in answers] == wanted
