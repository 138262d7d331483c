"""Gemma: embedding times the root of its size, layers of norm, attention, norm and gated MLP, norm; the head is the embedding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from gemma_model.config import read_config
from jackfield.hookspecs import AttentionLayer, Builder, ForwardContext, LoadReport, Model, Norm, Weight


class Gemma(Model):
    def __init__(self, config: Mapping[str, Any], build: Builder) -> None:
        self._config = read = read_config(config)
        self._build = build
        self._rotary = build.rotary(config, head_size=read.head_dim)
        vocab, hidden = read.vocab_size, read.hidden_size
        self._embed = build.embedding("model.embed_tokens.weight", vocab, hidden)
        self._scale = hidden**0.5
        self._layers = [self._layer(layer) for layer in build.shape.layers]
        self._norm = self._gemma_norm("model.norm.weight")
        self._head = build.head(
            "lm_head.weight", vocab, hidden, tied_to=self._embed if read.tie_word_embeddings else None
        )

    def forward(self, ids: torch.Tensor, ctx: ForwardContext, embeds: torch.Tensor | None = None) -> torch.Tensor:
        if embeds is None:
            embeds = self._embed(ids, ctx)
            embeds = embeds * torch.tensor(self._scale, dtype=embeds.dtype)  # rounded, as it was in training
        x, residual = embeds, None
        for layer, pre, post in self._layers:
            q, k, v, residual = ctx.ops.pre_attention(pre, x, residual, ctx)
            x, residual = ctx.ops.post_attention(post, ctx.attend(layer, q, k, v), residual, ctx)
        return self._norm(x, ctx, residual)

    def logits(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        return self._head(hidden, ctx)

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return self._build.load(weights)

    def _gemma_norm(self, name: str) -> Norm:
        """The checkpoint holds the weight less 1."""
        return self._build.norm(name, self._config.hidden_size, eps=self._config.rms_norm_eps, offset=1.0)

    def _layer(self, layer: AttentionLayer) -> tuple[AttentionLayer, Any, Any]:
        config, build, at = self._config, self._build, f"model.layers.{layer.id}"
        pre = build.pre_attention(
            norm=self._gemma_norm(f"{at}.input_layernorm.weight"),
            q=f"{at}.self_attn.q_proj",
            k=f"{at}.self_attn.k_proj",
            v=f"{at}.self_attn.v_proj",
            layer=layer,
            rotary=self._rotary,
            bias=config.attention_bias,
            total_kv_heads=config.num_key_value_heads,
        )
        post = build.post_attention(
            o=f"{at}.self_attn.o_proj",
            norm=self._gemma_norm(f"{at}.post_attention_layernorm.weight"),
            gate=f"{at}.mlp.gate_proj",
            up=f"{at}.mlp.up_proj",
            down=f"{at}.mlp.down_proj",
            activation="gelu_tanh",
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            layer=layer,
            attention_bias=config.attention_bias,
        )
        return layer, pre, post
