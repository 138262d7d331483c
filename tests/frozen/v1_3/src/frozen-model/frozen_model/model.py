"""Llama as 1.3 can say it: keys and values may be written before attention, with embeddings scaled by 1, logits that are not capped, and no norms after a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from jackfield.hookspecs import Builder, ForwardContext, LayerBlocks, LoadReport, Model, Weight


class PlainLlama(Model):
    def __init__(self, config: Mapping[str, Any], build: Builder) -> None:
        self.build = build
        size, eps = config["hidden_size"], config["rms_norm_eps"]
        rotary = build.rotary(config, head_size=size // config["num_attention_heads"])
        self.embed = build.embedding("model.embed_tokens.weight", config["vocab_size"], size, scale=1.0)
        layers = []
        for layer in build.shape.layers:
            at = f"model.layers.{layer.id}"
            pre = build.pre_attention(
                norm=build.norm(f"{at}.input_layernorm.weight", size, eps=eps),
                q=f"{at}.self_attn.q_proj",
                k=f"{at}.self_attn.k_proj",
                v=f"{at}.self_attn.v_proj",
                layer=layer,
                rotary=rotary,
            )
            post = build.post_attention(
                o=f"{at}.self_attn.o_proj",
                norm=build.norm(f"{at}.post_attention_layernorm.weight", size, eps=eps),
                gate=f"{at}.mlp.gate_proj",
                up=f"{at}.mlp.up_proj",
                down=f"{at}.mlp.down_proj",
                activation=config["hidden_act"],
                hidden_size=size,
                intermediate_size=config["intermediate_size"],
                layer=layer,
                after_attention=None,
                after_mlp=None,
            )
            layers.append(LayerBlocks(pre=pre, attention=layer, post=post))
        self.layers = tuple(layers)
        self.norm = build.norm("model.norm.weight", size, eps=eps)
        self.head = build.head("lm_head.weight", config["vocab_size"], size, soft_cap=None)

    def forward(self, ids: torch.Tensor, ctx: ForwardContext, embeds: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(ids, ctx) if embeds is None else embeds
        residual: torch.Tensor | None = None
        for layer in self.layers:
            q, k, v, carried = ctx.pre_attention(layer.pre, x, residual)
            if k is None and ctx.kv_write(layer.attention) is None:
                raise RuntimeError("keys were written, and nobody said where")
            x, residual = ctx.post_attention(layer.post, ctx.attend(layer.attention, q, k, v), carried)
        return self.norm(x, ctx, residual)

    def logits(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        return self.head(hidden, ctx)

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return self.build.load(weights)
