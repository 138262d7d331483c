"""Kind `ops`: operators. A decoder layer is `pre_attention -> attend -> post_attention`, so that a provider can fuse on
both sides and any attention plugin fits between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec

if TYPE_CHECKING:
    import torch

    from jackfield.hookspecs.attention import AttentionBackend, AttentionLayer, AttentionPlan
    from jackfield.hookspecs.model import ForwardContext, Norm, Rotary


@dataclass(frozen=True, kw_only=True)
class DenseWeight:
    """A linear layer's weight on the device, before a provider packs it.

    encoding   "plain": data [out, in] in the run's dtype; a packed encoding: data uint8 [out, bytes a row]
    """

    encoding: str
    out_features: int
    in_features: int
    data: torch.Tensor


@dataclass(kw_only=True)
class PreAttention:
    """Weights of what stands before attention. `qkv` is one packed linear with rows q, k, v one under the other."""

    layer: AttentionLayer
    norm: Norm
    qkv: Any
    qkv_bias: torch.Tensor | None
    rotary: Rotary | None
    q_norm: Norm | None = None
    k_norm: Norm | None = None


@dataclass(kw_only=True)
class PostAttention:
    """Weights of what stands after attention. `gate_up` is one packed linear with rows gate, up.

    o and down are row-parallel: each rank holds some of the input columns, and the provider sums their results with
    `ctx.all_reduce`. Their biases stand on rank 0 alone, so that a provider may add them before the sum.
    activation   "silu" | "gelu" | "gelu_tanh" | "relu"
    after_attention, after_mlp   norms of those two sums, before a residual is added; None in most models
    """

    layer: AttentionLayer
    o: Any
    o_bias: torch.Tensor | None
    norm: Norm
    gate_up: Any
    gate_up_bias: torch.Tensor | None
    down: Any
    down_bias: torch.Tensor | None
    activation: str
    after_attention: Norm | None = None
    after_mlp: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class LayerBlocks:
    """A decoder layer: what stands before its attention, the attention, what stands after it."""

    pre: PreAttention
    attention: AttentionLayer
    post: PostAttention


@dataclass(frozen=True, kw_only=True)
class KVWrite:
    """Where `Ops.pre_attention` may write one layer's new keys and values itself (`ForwardContext.kv_write`). Since 0.5

    slots    int64 [total new]: each new token's slot, which lies in page slot // page_size at place slot % page_size. Padding
             shares the slots of the dummy page; what lies there is never read
    k, v     the layer's KV, [pages, *page shape]. Where it is of another dtype than the run's, numbers are cast to it, and those
             beyond its range become its largest finite ones; a provider that cannot do that returns keys and values instead
    layout   name of the `KVLayout` by which k and v lie
    """

    slots: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    page_size: int
    layout: str


@dataclass(frozen=True, kw_only=True)
class SamplingGroups:
    """What the host knows of `SamplingRows`, so that a provider need not ask the device for it and wait. A greedy row is in
    neither group.

    plain       int64 [a], on the logits' device: the rows that draw from all tokens
    filtered    int64 [b], likewise: those that draw from what a top-k or top-p leaves
    most_top_k  the largest `top_k` of the filtered rows; 0: there are none
    min_p       whether a row that draws has one
    """

    plain: torch.Tensor
    filtered: torch.Tensor
    most_top_k: int
    min_p: bool


@dataclass(frozen=True, kw_only=True)
class SamplingRows:
    """Sampling parameters of the rows that are sampled, one entry a row; tensors on the logits' device.

    temperature   float32 [n]; 0 means greedy
    top_k         int32 [n]; vocabulary size means off
    top_p, min_p  float32 [n]; 1 and 0 mean off
    stream        int64 [n]: 64 random bits a row, a hash of its seed and the position of the token that it is about to
                  get. `jackfield.layers.noise.uniforms` makes each token's random number from it, so that a row's draw
                  does not depend on its neighbours
    greedy        True if every row is greedy; then `stream` is 0 everywhere
    groups        None: all rows are greedy, or nobody said
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    stream: torch.Tensor
    greedy: bool
    groups: SamplingGroups | None = None


class Ops(ABC):
    """Operators. Inputs and outputs are in the run's dtype unless said otherwise."""

    @abstractmethod
    def pack(self, weight: DenseWeight) -> Any:
        """Bring a weight into the form that this provider's `linear` wants. Called once a linear layer, after loading.

        With `OpsContext.quantization` it quantises a plain weight itself.
        """

    def pack_mixed(self, parts: Sequence[DenseWeight]) -> Any | None:
        """Pack one linear whose rows, part by part one under the other, have different encodings, as q, k and v of some GGUF
        files do; all are in the manifest's `encodings`. None: it cannot, and the whole is decoded for `pack`.
        """
        return None

    def export(self, packed: Any) -> tuple[Mapping[str, Any], NDArray[np.uint8]] | None:
        """A packed weight as (header, bytes), for a cache on disk that later runs map; None: it is not worth keeping.

        header   JSON values: all that `restore` needs beside the bytes, shape and dtype among them
        bytes    uint8 [n], contiguous; may be a view of the packed weight, and is read before anything else is asked

        What does not stand in the context and yet decides the form (the CPU's instruction set, a number of the form itself)
        belongs into `packing`.
        """
        return None

    def restore(self, header: Mapping[str, Any], data: NDArray[np.uint8]) -> Any:
        """What `pack` gave when `export` made these. Called only for what this provider's `export` gave, with equal `packing`.

        data   read-only and mapped from a file, aligned to 4,096 bytes, valid as long as something refers to it: keep a
               reference beside any raw pointer, and copy nothing if you can
        """
        raise NotImplementedError(f"{type(self).__name__} exports packed weights and cannot restore them")

    def packing(self) -> str:
        """The form of what `pack` makes here, in a word: weights that were exported under another are packed anew."""
        return ""

    def looks_up(self, packed: Any) -> bool:
        """Whether `embedding` takes this packed weight [vocab, hidden] in the place of a table. A tied head's table is then
        not kept beside it."""
        return False

    @abstractmethod
    def linear(self, x: torch.Tensor, weight: Any, bias: torch.Tensor | None = None) -> torch.Tensor:
        """[n, in] -> [n, out]; `weight` came from `pack`."""

    def logits(self, x: torch.Tensor, weight: Any) -> torch.Tensor:
        """[n, hidden] -> float32 [n, vocab], a tensor of its own, which the caller may change; `weight` came from `pack`.

        A provider that sums in float32 can give that without rounding to the run's dtype.
        """
        return self.linear(x, weight).float()

    @abstractmethod
    def norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """RMS norm of x + residual over the last dimension, computed in float32.

        Returns (normed, x + residual); without a residual the second is x.
        """

    @abstractmethod
    def embedding(self, ids: torch.Tensor, table: Any) -> torch.Tensor:
        """int64 [n], [vocab, hidden] -> [n, hidden], in the run's dtype.

        table   a tensor in the run's dtype, or a packed weight for which `looks_up` is true
        """

    @abstractmethod
    def pre_attention(
        self, block: PreAttention, x: torch.Tensor, residual: torch.Tensor | None, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor]:
        """Norm (adding the residual), projections, rotary.

        Returns q [n, heads, head_size], k and v [n, kv_heads, head_size], and the new residual [n, hidden]. Both k and v are
        None if this provider wrote them where `ctx.kv_write` says, as `AttentionBackend.attend` would have: it may do so only
        in a layout that its manifest lists, and must not where `kv_write` gives None.
        """

    @abstractmethod
    def post_attention(
        self, block: PostAttention, attended: torch.Tensor, residual: torch.Tensor, ctx: ForwardContext
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Output projection, norm (adding the residual), gated MLP. attended [n, heads * v_head_size].

        The two row-parallel products go through `ctx.all_reduce`, and then through the block's norm for them, if any. Returns
        (x, residual): the layer's output before the residual is added, and the residual.
        """

    def layers(
        self,
        layers: Sequence[LayerBlocks],
        x: torch.Tensor,
        ctx: ForwardContext,
        backend: AttentionBackend,
        plan: AttentionPlan,
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """All these layers, for a provider that knows the attention backend of the run well enough to do its work too.

        Must give what `pre_attention`, the backend's `attend` and `post_attention` give layer by layer, and write the new keys
        and values as `attend` does. x [n, hidden] enters the first layer, without a residual. Returns (x, residual) of the last
        one. None: it cannot here; nothing is written then, and the layers are gone through one by one.

        layers   the same object at each forward of a model, so that what was made of it can be kept by its identity
        plan     the backend's, of this forward
        """
        return None

    @abstractmethod
    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        """float32 [n, vocab] -> int64 [n]; -1 for a row whose logits hold a NaN or +inf or nothing finite.

        Order as in SGLang: greedy rows take the arg max, the lowest id of equals; else / temperature, softmax, top-k,
        top-p over the sorted probabilities that are not renormalised, min-p relative to the largest; of equals the lower
        ids come first. Of the tokens j that are left, the one with the largest p_j / -log(u_j) is drawn, u_j being
        `jackfield.layers.noise.uniforms` of the row's stream and j, in float64: an exponential race, in which rounding
        matters only where the two best tie, so that every provider draws the same tokens. A row's answer depends on its
        own logits and parameters alone. Any temperature > 0 must be safe: a tiny one tends to greedy and never overflows.
        """


@dataclass(frozen=True, kw_only=True)
class OpsContext(PluginContext):
    """device, dtype: torch names; layout: the KV layout of the run.

    deterministic   each row of every operator's result must have the same bits whatever the other rows are and however
                    many; set only for a provider that declares "batch_invariant" for this device and dtype
    quantization    how `pack` is to quantise plain weights, such as "w8a8_int8" (int8, one scale a row, and int8
                    activations); set only for a provider that declares the feature "quantization:<name>". None: not at all.
                    Packed encodings of a checkpoint are another thing, see `DenseWeight.encoding`
    tp_size         tensor-parallel ranks; with 1, `all_reduce` changes nothing, and `post_attention` may go past it
    """

    device: str
    dtype: str
    layout: str
    deterministic: bool = False
    quantization: str | None = None
    tp_size: int = 1


class OpsSpecs:
    @hookspec
    def jackfield_ops(self, context: OpsContext) -> Ops:  # type: ignore[empty-body]
        """Make the operator provider.

        Process: scheduler (the worker's side). When: once at start, before the model is built. Cost: any. Example:

            @hookimpl
            def jackfield_ops(context: OpsContext) -> Ops:
                from my_package.ops import MyOps

                return MyOps(context)
        """
