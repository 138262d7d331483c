"""Kind `model`: model code, written against a `Builder` that brings parallelism, operators and packed weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jackfield.hookspecs.attention import AttentionLayer
from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.kv import KVGroup
from jackfield.hookspecs.loader import Shard, Weight
from jackfield.hookspecs.markers import hookspec
from jackfield.hookspecs.pooling import Pooling

if TYPE_CHECKING:
    import torch

    from jackfield.hookspecs.ops import KVWrite, LayerBlocks, Ops, PostAttention, PreAttention


class UnsupportedModel(Exception):
    """The configuration asks for something that this model code does not do. The text names the config entry."""


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What the rest of the runtime must know of a model before any weight is read (one rank's share).

    dtype             the checkpoint's dtype, used by `--dtype auto`
    max_context       longest sequence that the positions allow
    layers, groups    attention layers and the KV groups that they form
    features          what it asks of attention: "window", "soft_cap", ...
    weight_bytes      estimate of the weights at two bytes an element
    pooling           what it gives of a whole prompt (`Model.pool`); None: nothing of its own. Since 1.1
    generates         it has next tokens to give (`Model.logits`); False only with `pooling`. Since 1.1
    """

    architecture: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_context: int
    dtype: str
    layers: tuple[AttentionLayer, ...]
    groups: tuple[KVGroup, ...]
    features: frozenset[str] = frozenset()
    weight_bytes: int = 0
    pooling: Pooling | None = None
    generates: bool = True

    @property
    def head_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({layer.head_size for layer in self.layers}))

    def kv_elements_per_token(self) -> int:
        """Elements of K and V that one token takes over all layers."""
        return sum(len(g.layers) * g.num_kv_heads * (g.head_size + g.v_head_size) for g in self.groups)


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """Where an architecture's code is, as "package.module:name", resolved only when chosen.

    shape   a function `describe(config: dict, shard: Shard) -> ModelShape` whose module imports no torch. It is passed by name
            those of `config`, `shard` that it names
    model   a subclass of `Model`
    """

    shape: str
    model: str


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """All that was wrong with a checkpoint, in one go.

    loaded       tensors of the checkpoint that were used (a duplicate of a tied head counts)
    missing      names that the model needs and the checkpoint lacks
    unexpected   names that no part of the model asked for
    mis_shaped   name -> (expected, found)
    rejected     name -> why its content cannot be used: an encoding that nobody reads, a wrong number of bytes, a name
                 given twice, a head that contradicts the embedding to which it is tied
    """

    loaded: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mis_shaped: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not (self.missing or self.unexpected or self.mis_shaped or self.rejected)

    def problems(self) -> tuple[str, ...]:
        """Each problem as one line for an operator; empty when `ok`."""
        return (
            *(f"missing: {name}" for name in self.missing),
            *(f"unexpected: {name}" for name in self.unexpected),
            *(
                f"wrong shape: {name} is {list(found)}, the config asks for {list(expected)}"
                for name, (expected, found) in self.mis_shaped.items()
            ),
            *(f"unusable: {name}: {why}" for name, why in self.rejected.items()),
        )


class ForwardContext(Protocol):
    """One forward, as model code sees it.

    positions   int64 [total new]
    ops         the operator provider. Its contract is of the kind `ops`: model code that calls it names that too in its manifest
                (`contract = { model = "1.0", ops = "0.5" }`); the methods here do for most
    """

    @property
    def positions(self) -> torch.Tensor: ...

    @property
    def ops(self) -> Ops: ...

    @property
    def token_types(self) -> torch.Tensor | None:
        """int64 [total new]: to which of its texts each token belongs, where a prompt has several; None: all are 0. Since 1.1"""
        ...

    def layers(self, layers: Sequence[LayerBlocks], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Decoder layers one behind the other: for each `pre_attention`, `attend`, `post_attention`, or all in one call where the
        operators can. Since 1.2

        layers   the same object at each forward
        x        [total new, hidden], which enters the first layer without a residual

        Returns (x, residual) of the last layer.
        """
        ...

    def attend(
        self, layer: AttentionLayer, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None
    ) -> torch.Tensor:
        """Attention of one layer through the chosen backend.

        q [total new, num_heads, head_size], k/v [total new, num_kv_heads, head_size] or None when an operator wrote
        them already. Returns [total new, num_heads * v_head_size].
        """
        ...

    def kv_write(self, layer: AttentionLayer) -> KVWrite | None:
        """Where this forward's keys and values of the layer go, for operators that write them themselves. Since 1.3

        None: nowhere that they could know of (the layer reads another's, or they do not lie as one tensor of keys and one of
        values); they return keys and values then.
        """
        ...

    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        """Norm of x + residual, projections, rotary, as `Builder.pre_attention` put them together.

        x [total new, hidden]. Returns q [total new, heads, head_size], k and v for `attend` (None if they are written already),
        and the new residual.
        """
        ...

    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Output projection, norm and gated MLP, as `Builder.post_attention` put them together.

        attended [total new, num_heads * v_head_size]. Returns (x, residual): the layer's output before the residual is added.
        """
        ...

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum over the tensor-parallel ranks; x itself with one rank."""
        ...


class Builder(Protocol):
    """Makes the parts of a model. Each part knows the checkpoint names of its weights, cuts out this rank's share and
    keeps packed weights packed where the operators can use them so.

    shape, shard   as given by `describe`
    """

    @property
    def shape(self) -> ModelShape: ...

    @property
    def shard(self) -> Shard: ...

    def embedding(self, name: str, vocab_size: int, hidden_size: int, *, scale: float = 1.0) -> Embedding:
        """Token embedding; `name` is the checkpoint's tensor, for example "model.embed_tokens.weight".

        scale   factor on what is looked up, rounded to the run's dtype first. A head that is tied to it has none. Since 1.1
        """
        ...

    def head(
        self,
        name: str,
        vocab_size: int,
        hidden_size: int,
        *,
        tied_to: Embedding | None = None,
        soft_cap: float | None = None,
    ) -> Head:
        """Vocabulary projection. With `tied_to`, a tensor under `name` is accepted and must not contradict it.

        soft_cap   logits become soft_cap * tanh(logits / soft_cap), in float32; None: off. Since 1.1
        """
        ...

    def norm(self, name: str, size: int, *, eps: float, offset: float = 0.0) -> Norm:
        """RMS norm with weight `offset + tensor`."""
        ...

    def rotary(self, config: Mapping[str, Any], *, head_size: int) -> Rotary:
        """Rotary table from a config's rope entries, old layout or new. Raises UnsupportedModel."""
        ...

    def layer_norm(self, name: str, size: int, *, eps: float) -> LayerNorm:
        """Layer norm with the tensors `name`.weight and `name`.bias; the whole on every rank. Since 1.1"""
        ...

    def linear(self, names: Sequence[str], in_features: int, out_features: int, *, bias: bool = True) -> Linear:
        """A projection with the tensors NAME.weight [out_features, in_features] and NAME.bias [out_features]; several names are
        one matrix, their outputs one behind the other. The whole on every rank. Since 1.1"""
        ...

    def pre_attention(
        self,
        *,
        norm: Norm,
        q: str,
        k: str,
        v: str,
        layer: AttentionLayer,
        rotary: Rotary | None,
        bias: bool = False,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
        total_kv_heads: int | None = None,
    ) -> PreAttention:
        """Norm, projections (column-parallel by heads) and rotary, for `ForwardContext.pre_attention`. q, k, v: name prefixes,
        ".weight" is added.

        total_kv_heads   the whole model's key/value heads; None: `layer.num_kv_heads` on each rank. Only needed when
                         there are fewer than ranks, which then share them.
        """
        ...

    def post_attention(
        self,
        *,
        o: str,
        norm: Norm,
        gate: str,
        up: str,
        down: str,
        activation: str,
        hidden_size: int,
        intermediate_size: int,
        layer: AttentionLayer,
        attention_bias: bool = False,
        mlp_bias: bool = False,
        after_attention: Norm | None = None,
        after_mlp: Norm | None = None,
    ) -> PostAttention:
        """Output projection (row-parallel), norm and gated MLP, for `ForwardContext.post_attention`. o, gate, up, down: name
        prefixes.

        after_attention, after_mlp   norms of what the projection and the MLP give (the sum over all ranks), before the
                                     residual is added to it; None: none. Since 1.1
        """
        ...

    def ignore(self, pattern: str) -> None:
        """A regular expression of checkpoint names that are known and not needed (stored rotary tables, say)."""
        ...

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        """Route every weight to the part that asked for it, and report all that does not fit."""
        ...


class Embedding(Protocol):
    def __call__(self, ids: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """int64 [n] -> [n, hidden]."""
        ...


class Head(Protocol):
    def __call__(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, hidden] -> float32 [n, vocab]."""
        ...


class Norm(Protocol):
    """An RMS norm. Operators read `weight` and `eps`; model code calls it."""

    @property
    def weight(self) -> torch.Tensor:
        """[size], ready to multiply with (an offset is already added): the run's dtype, or float32 if it has an offset."""
        ...

    @property
    def eps(self) -> float: ...

    def __call__(self, x: torch.Tensor, ctx: ForwardContext, residual: torch.Tensor | None = None) -> torch.Tensor:
        """Norm of x, or of x + residual."""
        ...


class LayerNorm(Protocol):
    """Over the last dimension, with weight and bias."""

    def __call__(self, x: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, size] -> [n, size]."""
        ...


class Linear(Protocol):
    def __call__(self, x: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, in] -> [n, out]."""
        ...


class Rotary(Protocol):
    def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """int64 [n] -> cos, sin, float32 [n, rotary / 2] each.

        `rotary` is the number of leading dimensions of a head that turn, usually all of them; dimension i of its first
        half turns with dimension i of its second half (Hugging Face's order).
        """
        ...


class Model(ABC):
    """One rank's share of a model. Made on the run's device and dtype; weights come through `load`."""

    @abstractmethod
    def __init__(self, config: Mapping[str, Any], build: Builder) -> None: ...

    @abstractmethod
    def forward(self, ids: torch.Tensor, ctx: ForwardContext, embeds: torch.Tensor | None = None) -> torch.Tensor:
        """ids int64 [total new] -> final hidden states [total new, hidden], normed. `embeds` replaces the embedding."""

    def logits(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, hidden] -> float32 [n, vocab]. Required unless the shape says that the model does not generate (since 1.1)."""
        raise NotImplementedError(f"{type(self).__name__} gives no logits of next tokens")

    def pool(self, hidden: torch.Tensor, starts: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """What the model gives of whole prompts, float32 [m, width]; asked only in a run that pools. Since 1.1

        hidden   [total, hidden] what `forward` gave for the tokens of the m rows whose prompt ends in this forward, one row
                 behind the other; with `Pooling.whole` all of the prompt's, else those of its last part
        starts   int64 [m + 1]: row i has hidden[starts[i]:starts[i + 1]], at least one

        A row's answer depends on its own tokens alone. Default: the last token's hidden state.
        """
        return hidden.index_select(0, starts[1:] - 1).float()

    @abstractmethod
    def load(self, weights: Iterator[Weight]) -> LoadReport:
        """Usually `return self.build.load(weights)`."""


@dataclass(frozen=True, kw_only=True)
class ModelsContext(PluginContext):
    """Nothing beyond what every context has."""


class ModelSpecs:
    @hookspec
    def jackfield_models(self, context: ModelsContext) -> Mapping[str, ModelEntry]:  # type: ignore[empty-body]
        """Hugging Face architecture name -> where its code is.

        Process: scheduler, and any that asks for a model's shape. When: once at start. Cost: none, nothing is imported.
        The manifest lists the same names under `architectures`. Example:

            @hookimpl
            def jackfield_models(context: ModelsContext) -> Mapping[str, ModelEntry]:
                return {"LlamaForCausalLM": ModelEntry(shape="pkg.shape:describe", model="pkg.model:Llama")}
        """


__all__: Sequence[str] = (
    "Builder",
    "Embedding",
    "ForwardContext",
    "Head",
    "LayerNorm",
    "Linear",
    "LoadReport",
    "Model",
    "ModelEntry",
    "ModelShape",
    "ModelSpecs",
    "ModelsContext",
    "Norm",
    "Rotary",
    "UnsupportedModel",
)
