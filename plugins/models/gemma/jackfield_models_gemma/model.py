"""Gemma 3: scaled embedding, layers of (norm, attention, norm) and (norm, gated MLP, norm), norm, head.

n = new tokens of the batch, d = hidden size. Parallelism, packed weights and operators come from the builder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from jackfield.hookspecs import (
    AttentionLayer,
    Builder,
    ForwardContext,
    LayerBlocks,
    LoadReport,
    Model,
    Norm,
    Rotary,
    Weight,
)
from jackfield_models_gemma.rope import read_ropes
from jackfield_models_gemma.settings import FULL, WINDOW, Settings, read_settings


class Gemma3(Model):
    """One rank's share."""

    def __init__(self, config: Mapping[str, Any], build: Builder) -> None:
        settings = read_settings(config)
        self._build = build
        self._embed = build.embedding(
            "model.embed_tokens.weight", settings.vocab_size, settings.hidden_size, scale=settings.hidden_size**0.5
        )
        ropes = read_ropes(config, settings)
        rotary = {kind: build.rotary(ropes[kind], head_size=settings.head_dim) for kind in (FULL, WINDOW)}
        self._layers = tuple(
            decoder_layer(settings, build, layer, rotary[WINDOW if windowed else FULL])
            for layer, windowed in zip(build.shape.layers, settings.windowed, strict=True)
        )
        self._norm = gemma_norm(build, "model.norm", settings.hidden_size, settings)
        self._head = build.head(
            "lm_head.weight",
            settings.vocab_size,
            settings.hidden_size,
            tied_to=self._embed if settings.tie_word_embeddings else None,
            soft_cap=settings.final_logit_softcapping,
        )

    def forward(self, ids: torch.Tensor, ctx: ForwardContext, embeds: torch.Tensor | None = None) -> torch.Tensor:
        x = self._embed(ids, ctx) if embeds is None else embeds  # [n, d]
        x, residual = ctx.layers(self._layers, x)  # the residual is apart, so that the norm adds it
        return self._norm(x, ctx, residual)

    def logits(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        return self._head(hidden, ctx)

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return self._build.load(weights)


def decoder_layer(settings: Settings, build: Builder, layer: AttentionLayer, rotary: Rotary) -> LayerBlocks:
    at = f"model.layers.{layer.id}"

    def norm(name: str, size: int = settings.hidden_size) -> Norm:
        return gemma_norm(build, f"{at}.{name}", size, settings)

    return LayerBlocks(
        pre=build.pre_attention(
            norm=norm("input_layernorm"),
            q=f"{at}.self_attn.q_proj",
            k=f"{at}.self_attn.k_proj",
            v=f"{at}.self_attn.v_proj",
            layer=layer,
            rotary=rotary,
            bias=settings.attention_bias,
            q_norm=norm("self_attn.q_norm", settings.head_dim),
            k_norm=norm("self_attn.k_norm", settings.head_dim),
            total_kv_heads=settings.num_key_value_heads,
        ),
        attention=layer,
        post=build.post_attention(
            o=f"{at}.self_attn.o_proj",
            norm=norm("pre_feedforward_layernorm"),
            gate=f"{at}.mlp.gate_proj",
            up=f"{at}.mlp.up_proj",
            down=f"{at}.mlp.down_proj",
            activation=settings.activation,
            hidden_size=settings.hidden_size,
            intermediate_size=settings.intermediate_size,
            layer=layer,
            attention_bias=settings.attention_bias,
            after_attention=norm("post_attention_layernorm"),
            after_mlp=norm("post_feedforward_layernorm"),
        ),
    )


def gemma_norm(build: Builder, name: str, size: int, settings: Settings) -> Norm:
    """The checkpoint holds the weight less 1."""
    return build.norm(f"{name}.weight", size, eps=settings.rms_norm_eps, offset=1.0)
