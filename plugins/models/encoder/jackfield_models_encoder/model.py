"""The BERT family: embeddings, layers of (attention, norm, MLP, norm), and what makes one answer of a text's states.

Reads from top to bottom. n = new tokens of the batch, d = hidden size. A text's tokens all see each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from jackfield.hookspecs import AttentionLayer, Builder, ForwardContext, LoadReport, Model, Weight
from jackfield_models_encoder.pooling import pool
from jackfield_models_encoder.settings import Settings, read_settings

_ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


class Bert(Model):
    """BERT, RoBERTa, XLM-RoBERTa, with or without a classification head."""

    def __init__(self, config: Mapping[str, Any], build: Builder) -> None:
        self.settings = settings = read_settings(config)
        self.build = build
        self._prefix = settings.family.prefix if settings.family.classifies else ""
        at, d = f"{self._prefix}embeddings", settings.hidden_size
        self.words = build.embedding(f"{at}.word_embeddings.weight", settings.vocab_size, d)
        self.places = build.embedding(f"{at}.position_embeddings.weight", settings.max_position, d)
        self.types = build.embedding(f"{at}.token_type_embeddings.weight", settings.type_vocab_size, d)
        self.norm = build.layer_norm(f"{at}.LayerNorm", d, eps=settings.eps)
        self.layers = [Layer(settings, build, layer, self._prefix) for layer in build.shape.layers]
        head = settings.family.head
        self.head = [build.linear([name], d, d if name != head[-1] else settings.pooling.width) for name in head]
        build.ignore(rf"({re.escape(settings.family.prefix)})?embeddings\.position_ids")  # stored by old versions
        if not settings.family.classifies:
            # Heads of other tasks, and a pooler that sentence-transformers' poolings leave aside.
            build.ignore(r"(pooler|cls|lm_head)\..*")

    def forward(self, ids: torch.Tensor, ctx: ForwardContext, embeds: torch.Tensor | None = None) -> torch.Tensor:
        x = self.words(ids, ctx) if embeds is None else embeds  # [n, d]
        types = torch.zeros_like(ctx.positions) if ctx.token_types is None else ctx.token_types
        x = x + self.types(types, ctx) + self.places(ctx.positions + self.settings.first_position, ctx)
        x = self.norm(x, ctx)
        for layer in self.layers:
            x = layer(x, ctx)
        return x

    def pool(self, hidden: torch.Tensor, starts: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        if not self.head:
            return pool(hidden, starts, self.settings.modes)
        x = hidden.index_select(0, starts[:-1])  # each text's first token [m, d]
        dense, out = self.head
        return out(torch.tanh(dense(x, ctx)), ctx).float()

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return self.build.load(self._renamed(one) for one in weights)

    def _renamed(self, weight: Weight) -> Weight:
        """Without the prefix that a checkpoint made for a head has, where there is none; with today's names of norms."""
        name = weight.name if self._prefix else weight.name.removeprefix(self.settings.family.prefix)
        name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        return weight if name == weight.name else replace(weight, name=name)


class Layer:
    """One layer: its norms stand behind the sums."""

    def __init__(self, settings: Settings, build: Builder, layer: AttentionLayer, prefix: str) -> None:
        at, d, inner = f"{prefix}encoder.layer.{layer.id}", settings.hidden_size, settings.intermediate_size
        self.attention = layer
        self.heads = (layer.num_heads, layer.head_size)
        self.qkv = build.linear([f"{at}.attention.self.{name}" for name in ("query", "key", "value")], d, d)
        self.o = build.linear([f"{at}.attention.output.dense"], d, d)
        self.attention_norm = build.layer_norm(f"{at}.attention.output.LayerNorm", d, eps=settings.eps)
        self.up = build.linear([f"{at}.intermediate.dense"], d, inner)
        self.down = build.linear([f"{at}.output.dense"], inner, d)
        self.norm = build.layer_norm(f"{at}.output.LayerNorm", d, eps=settings.eps)
        self.activation = _ACTIVATIONS[settings.activation]

    def __call__(self, x: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        q, k, v = (part.view(len(x), *self.heads) for part in self.qkv(x, ctx).chunk(3, dim=-1))  # [n, heads, head]
        x = self.attention_norm(x + self.o(ctx.attend(self.attention, q, k, v), ctx), ctx)
        return self.norm(x + self.down(self.activation(self.up(x, ctx)), ctx), ctx)
