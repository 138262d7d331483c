"""Models with one fault each, built on the Llama code; and `describe` functions with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from jackfield.hookspecs import LoadReport, ModelShape, Pooling, Shard, Weight
from jackfield.layers.one_by_one import layers_one_by_one
from jackfield_models_llama.model import Llama
from jackfield_models_llama.shape import describe


class Through:
    """A `ForwardContext` that is another one but for what is given."""

    def __init__(self, ctx: Any, **instead: Any) -> None:
        self._ctx = ctx
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def layers(self, layers: Any, x: torch.Tensor) -> Any:
        return layers_one_by_one(layers, x, self)

    def pre_attention(self, *given: Any) -> Any:
        return self.ops.pre_attention(*given, self)

    def post_attention(self, *given: Any) -> Any:
        return self.ops.post_attention(*given, self)


class TurnsNothing(Llama):
    def __init__(self, config: Mapping[str, Any], build: Any) -> None:
        super().__init__(config, build)
        for layer in self.layers:
            layer.pre.rotary = None


class CountsFromZero(Llama):
    """Every forward is taken for the begin of a sequence."""

    def forward(self, ids: torch.Tensor, ctx: Any, embeds: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(ids, Through(ctx, positions=torch.arange(len(ids))), embeds)


class MixesPrompts(Llama):
    """One vector is made of all the prompts of a forward."""

    def pool(self, hidden: torch.Tensor, starts: torch.Tensor, ctx: Any) -> torch.Tensor:
        return hidden.mean(dim=0).expand(len(starts) - 1, -1)


class SumsNothing(Llama):
    def forward(self, ids: torch.Tensor, ctx: Any, embeds: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(ids, Through(ctx, all_reduce=lambda x: x), embeds)


class IgnoresEmbeds(Llama):
    def forward(self, ids: torch.Tensor, ctx: Any, embeds: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(ids, ctx)


class LosesBits(Llama):
    def forward(self, ids: torch.Tensor, ctx: Any, embeds: torch.Tensor | None = None) -> torch.Tensor:
        hidden = super().forward(ids, ctx, embeds)
        return hidden if hidden.dtype == torch.float32 else hidden.to(torch.float8_e4m3fn).to(hidden.dtype)


class SaysNothingIsMissing(Llama):
    def load(self, weights: Iterator[Weight]) -> LoadReport:
        return replace(super().load(weights), missing=())


class WantsTheEmbeddingFirst(Llama):
    def load(self, weights: Iterator[Weight]) -> LoadReport:
        given = list(weights)
        assert given[0].name == "model.embed_tokens.weight"
        return super().load(iter(given))


class ForgetsBiases(Llama):
    def __init__(self, config: Mapping[str, Any], build: Any) -> None:
        super().__init__({**config, "attention_bias": False, "mlp_bias": False}, build)
        build.ignore(r".*\.bias")


class KnowsOneEpsilon(Llama):
    def __init__(self, config: Mapping[str, Any], build: Any) -> None:
        super().__init__({**config, "rms_norm_eps": 1e-6}, build)


class TakesAnyActivation(Llama):
    def __init__(self, config: Mapping[str, Any], build: Any) -> None:
        super().__init__({**config, "hidden_act": "silu"}, build)


def describes_any_activation(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    return describe({**config, "hidden_act": "silu"}, shard)


def fails_instead_of_refusing(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    assert config["hidden_size"]
    return describe(config, shard)


def pools(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    shape = describe(config, shard)
    return replace(shape, pooling=Pooling(kind="embedding", width=shape.hidden_size, whole=False))


def imports_torch(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    return describe(config, shard)


def counts_a_byte_an_element(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    shape = describe(config, shard)
    return replace(shape, weight_bytes=shape.weight_bytes // 2)


def counts_other_positions(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    return replace(describe(config, shard), max_context=4096)


def forgets_the_window(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    return replace(describe(config, shard), features=frozenset())
