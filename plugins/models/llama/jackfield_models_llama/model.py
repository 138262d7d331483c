"""The Llama family: embedding, layers of (norm, attention, norm, gated MLP), norm, head. Reads from top to bottom.

n = new tokens of the batch, d = hidden size. Parallelism, packed weights and operators come from the builder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from jackfield.hookspecs import AttentionLayer, Builder, ForwardContext, LoadReport, Model, Rotary, Weight
from jackfield_models_llama.settings import Settings, read_settings


class Llama(Model):
    """Llama, Mistral, SmolLM: one rank's share."""

    def __init__(self, config: Mapping[str, Any], build: Builder) -> None:
        settings = read_settings(config)
        self.build = build
        self.embed = build.embedding("model.embed_tokens.weight", settings.vocab_size, settings.hidden_size)
        rotary = build.rotary(settings.rope, head_size=settings.head_size)
        self.layers = [
            DecoderLayer(settings, build, layer, rotary if turns else None)
            for layer, turns in zip(build.shape.layers, settings.rotary, strict=True)
        ]
        self.norm = build.norm("model.norm.weight", settings.hidden_size, eps=settings.eps)
        self.head = build.head(
            "lm_head.weight",
            settings.vocab_size,
            settings.hidden_size,
            tied_to=self.embed if settings.tied else None,
        )
        build.ignore(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")  # old checkpoints store the table

    def forward(self, ids: torch.Tensor, ctx: ForwardContext, embeds: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(ids, ctx) if embeds is None else embeds  # [n, d]
        residual = None
        for layer in self.layers:
            x, residual = layer(x, residual, ctx)
        return self.norm(x, ctx, residual)

    def logits(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        return self.head(hidden, ctx)

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return self.build.load(weights)


class DecoderLayer:
    """One layer; the residual is carried beside x so that operators can fuse its addition into the norms."""

    def __init__(self, settings: Settings, build: Builder, layer: AttentionLayer, rotary: Rotary | None) -> None:
        at = f"model.layers.{layer.id}"
        self.attention = layer
        self.pre = build.pre_attention(
            norm=build.norm(f"{at}.input_layernorm.weight", settings.hidden_size, eps=settings.eps),
            q=f"{at}.self_attn.q_proj",
            k=f"{at}.self_attn.k_proj",
            v=f"{at}.self_attn.v_proj",
            layer=layer,
            rotary=rotary,
            bias=settings.attention_bias,
            total_kv_heads=settings.num_kv_heads,
        )
        self.post = build.post_attention(
            o=f"{at}.self_attn.o_proj",
            norm=build.norm(f"{at}.post_attention_layernorm.weight", settings.hidden_size, eps=settings.eps),
            gate=f"{at}.mlp.gate_proj",
            up=f"{at}.mlp.up_proj",
            down=f"{at}.mlp.down_proj",
            activation=settings.activation,
            hidden_size=settings.hidden_size,
            intermediate_size=settings.intermediate_size,
            layer=layer,
            attention_bias=settings.attention_bias,
            mlp_bias=settings.mlp_bias,
        )

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v, residual = ctx.pre_attention(self.pre, x, residual)
        attended = ctx.attend(self.attention, q, k, v)  # [n, heads * head_size]
        return ctx.post_attention(self.post, attended, residual)
