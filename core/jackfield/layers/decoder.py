"""A pre-norm decoder: embedding, layers of (norm, attention, norm, gated MLP), norm, head. Reads from top to bottom.

What differs between the architectures that are this decoder stands in `DecoderSettings`; one that computes in another
order or with other parts has code of its own. n = new tokens of the batch, d = hidden size. Parallelism, packed weights
and operators come from the builder.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from jackfield.layers.decoder_shape import DecoderSettings


class Decoder(Model):
    """One rank's share. An architecture's model class makes the settings of its config and passes them on."""

    def __init__(self, settings: DecoderSettings, build: Builder) -> None:
        self.build = build
        self.embed = build.embedding("model.embed_tokens.weight", settings.vocab_size, settings.hidden_size)
        rotary = build.rotary(settings.rope, head_size=settings.head_size)
        self.layers = tuple(
            decoder_layer(settings, build, layer, rotary if turns else None)
            for layer, turns in zip(build.shape.layers, settings.rotary, strict=True)
        )
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
        x, residual = ctx.layers(self.layers, x)  # the residual is apart, so that the norm adds it
        return self.norm(x, ctx, residual)

    def logits(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        return self.head(hidden, ctx)

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return self.build.load(weights)


def decoder_layer(
    settings: DecoderSettings, build: Builder, layer: AttentionLayer, rotary: Rotary | None
) -> LayerBlocks:
    at = f"model.layers.{layer.id}"

    def head_norm(name: str) -> Norm | None:
        """One weight for all heads, so that every rank holds it whole."""
        return build.norm(f"{at}.{name}", settings.head_size, eps=settings.eps) if settings.head_norms else None

    return LayerBlocks(
        pre=build.pre_attention(
            norm=build.norm(f"{at}.input_layernorm.weight", settings.hidden_size, eps=settings.eps),
            q=f"{at}.self_attn.q_proj",
            k=f"{at}.self_attn.k_proj",
            v=f"{at}.self_attn.v_proj",
            layer=layer,
            rotary=rotary,
            bias=settings.qkv_bias,
            q_norm=head_norm("self_attn.q_norm.weight"),
            k_norm=head_norm("self_attn.k_norm.weight"),
            total_kv_heads=settings.num_kv_heads,
        ),
        attention=layer,
        post=build.post_attention(
            o=f"{at}.self_attn.o_proj",
            norm=build.norm(f"{at}.post_attention_layernorm.weight", settings.hidden_size, eps=settings.eps),
            gate=f"{at}.mlp.gate_proj",
            up=f"{at}.mlp.up_proj",
            down=f"{at}.mlp.down_proj",
            activation=settings.activation,
            hidden_size=settings.hidden_size,
            intermediate_size=settings.intermediate_size,
            layer=layer,
            attention_bias=settings.o_bias,
            mlp_bias=settings.mlp_bias,
        ),
    )
