"""`TorchBuilder`: makes a model's parts, notes which tensors each needs, and loads them.

It knows the rank's share of every part and which encodings the operators take packed. It knows no architecture, no file
format, no KV layout and no attention backend.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from jackfield.hookspecs import (
    AttentionLayer,
    Embedding,
    LoadReport,
    ModelShape,
    Norm,
    Ops,
    PostAttention,
    PreAttention,
    Rotary,
    Shard,
    Weight,
)
from jackfield.layers.embedding import VocabEmbedding
from jackfield.layers.head import TiedHead, VocabHead
from jackfield.layers.linear import FusedLinear, Kept, LinearPart, Packing, PlainLinear
from jackfield.layers.loading import Expected, WeightRouter
from jackfield.layers.norm import AffineLayerNorm, RMSNorm
from jackfield.layers.rope_config import parse_rope
from jackfield.layers.rotary import RotaryTable
from jackfield.layers.shards import Span, even_share, kv_head_share, scaled, vocab_share
from jackfield.layers.weight_reader import copy_rows, torch_dtype


class TorchBuilder:
    """Implements `Builder`.

    device, dtype   torch names of the run
    encodings       weight encodings in which `ops` gets linear weights; others are decoded while loading
    packed_only     a linear weight in a packed encoding that would have to be decoded is rejected
    kept            packed weights of earlier runs, and where this one's go; None: all are made here
    max_context     longest sequence of this run; None: the model's own. Sizes the rotary tables and decides the
                    rotations of the types that depend on the length (`jackfield.layers.rotary`)
    """

    def __init__(
        self,
        *,
        shape: ModelShape,
        shard: Shard,
        ops: Ops,
        device: str,
        dtype: str,
        encodings: Collection[str] = ("plain",),
        packed_only: bool = False,
        kept: Kept | None = None,
        max_context: int | None = None,
    ) -> None:
        self.shape = shape
        self.shard = shard
        self.ops = ops
        self.device = device
        self.dtype = torch_dtype(dtype)
        self.packing = Packing(
            ops=ops, encodings=frozenset(encodings), device=device, dtype=self.dtype, packed_only=packed_only, kept=kept
        )
        self.max_context = max_context or shape.max_context
        self.router = WeightRouter()
        self._rotaries: dict[Any, RotaryTable] = {}
        self._on_embedding: dict[str, TiedHead] = {}

    # -- parts

    def embedding(self, name: str, vocab_size: int, hidden_size: int, *, scale: float = 1.0) -> VocabEmbedding:
        """Token embedding under the checkpoint name `name`."""
        made = VocabEmbedding(
            name, vocab_size, hidden_size, shard=self.shard, device=self.device, dtype=self.dtype, scale=scale
        )

        def accept(weight: Weight) -> None:
            tied = self._on_embedding.get(name)
            if tied is None:
                made.accept(weight)
            else:
                tied.accept_embedding(weight)

        def present() -> bool:
            return name in self._on_embedding and self._on_embedding[name].embedding_is_there()

        self.router.expect(name, Expected((vocab_size, hidden_size), accept, present=present))
        return made

    def head(
        self,
        name: str,
        vocab_size: int,
        hidden_size: int,
        *,
        tied_to: Embedding | None = None,
        soft_cap: float | None = None,
    ) -> VocabHead:
        """Vocabulary projection under the checkpoint name `name`, or the embedding itself."""
        shape = (vocab_size, hidden_size)
        if tied_to is not None:
            if not isinstance(tied_to, VocabEmbedding):
                raise TypeError("a head can be tied only to an embedding that this builder made")
            tied = TiedHead(name, tied_to, packing=self.packing, soft_cap=soft_cap)
            self._on_embedding[tied_to.name] = tied
            # The two were compared when the one was kept.
            there = tied.embedding_is_there
            self.router.expect(name, Expected(shape, tied.accept_duplicate, required=False, present=there))
            return tied
        made = VocabHead(vocab_size, shard=self.shard, soft_cap=soft_cap)
        rows = vocab_share(vocab_size, self.shard)
        self._linear([LinearPart(name=name, shape=shape, rows=rows, columns=(0, hidden_size))], made.install)
        return made

    def norm(self, name: str, size: int, *, eps: float, offset: float = 0.0) -> RMSNorm:
        """RMS norm with weight `offset + tensor`."""
        made = RMSNorm(size, eps=eps, offset=offset, device=self.device, dtype=self.dtype)
        self.router.expect(name, Expected((size,), made.accept))
        return made

    def layer_norm(self, name: str, size: int, *, eps: float) -> AffineLayerNorm:
        """Layer norm, the whole on every rank."""
        made = AffineLayerNorm(size, eps=eps, device=self.device, dtype=self.dtype)
        self.router.expect(f"{name}.weight", Expected((size,), made.accept_weight))
        self.router.expect(f"{name}.bias", Expected((size,), made.accept_bias))
        return made

    def linear(self, names: Sequence[str], in_features: int, out_features: int, *, bias: bool = True) -> PlainLinear:
        """Projections as one matrix, the whole on every rank."""
        made, rows = PlainLinear(), (0, out_features)
        shape = (out_features, in_features)
        self._linear(
            [LinearPart(name=f"{name}.weight", shape=shape, rows=rows, columns=(0, in_features)) for name in names],
            made.install,
        )
        if bias:
            made.bias = self._biases([(f"{name}.bias", out_features, rows) for name in names])
        return made

    def rotary(self, config: Mapping[str, Any], *, head_size: int) -> RotaryTable:
        """The table for a config's rope entries; layers with equal entries share one. Raises UnsupportedModel."""
        rope = parse_rope(config, head_size=head_size)
        if rope not in self._rotaries:
            self._rotaries[rope] = RotaryTable(rope, max_context=self.max_context, device=self.device)
        return self._rotaries[rope]

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
        """Norm, fused q, k, v projection and rotary; this rank's heads only."""
        tp_size = self.shard.tp_size
        q_heads = layer.num_heads * tp_size
        kv_heads = layer.num_kv_heads * tp_size if total_kv_heads is None else total_kv_heads
        q_span, kv_span = even_share(q_heads, self.shard, "attention heads"), kv_head_share(kv_heads, self.shard)
        sizes = (
            (q, q_heads * layer.head_size, scaled(q_span, layer.head_size)),
            (k, kv_heads * layer.head_size, scaled(kv_span, layer.head_size)),
            (v, kv_heads * layer.v_head_size, scaled(kv_span, layer.v_head_size)),
        )
        block = PreAttention(
            layer=layer, norm=norm, qkv=None, qkv_bias=None, rotary=rotary, q_norm=q_norm, k_norm=k_norm
        )
        hidden = self.shape.hidden_size
        self._linear(
            [
                LinearPart(name=f"{name}.weight", shape=(out, hidden), rows=rows, columns=(0, hidden))
                for name, out, rows in sizes
            ],
            _setter(block, "qkv"),
        )
        if bias:
            block.qkv_bias = self._biases([(f"{name}.bias", out, rows) for name, out, rows in sizes])
        return block

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
        """Row-parallel output projection, norm, column-parallel gate and up, row-parallel down."""
        attended = layer.num_heads * layer.v_head_size * self.shard.tp_size
        attended_span = even_share(attended, self.shard, "attention output")
        inner_span = even_share(intermediate_size, self.shard, "intermediate_size")
        block = PostAttention(
            layer=layer,
            o=None,
            o_bias=None,
            norm=norm,
            gate_up=None,
            gate_up_bias=None,
            down=None,
            down_bias=None,
            activation=activation,
            after_attention=after_attention,
            after_mlp=after_mlp,
        )
        whole = (0, hidden_size)
        o_part = LinearPart(name=f"{o}.weight", shape=(hidden_size, attended), rows=whole, columns=attended_span)
        down_part = LinearPart(
            name=f"{down}.weight", shape=(hidden_size, intermediate_size), rows=whole, columns=inner_span
        )
        gate_up_parts = [
            LinearPart(name=f"{name}.weight", shape=(intermediate_size, hidden_size), rows=inner_span, columns=whole)
            for name in (gate, up)
        ]
        self._linear([o_part], _setter(block, "o"))
        self._linear(gate_up_parts, _setter(block, "gate_up"))
        self._linear([down_part], _setter(block, "down"))
        if attention_bias:
            block.o_bias = self._row_parallel_bias(f"{o}.bias", hidden_size)
        if mlp_bias:
            block.gate_up_bias = self._biases([(f"{name}.bias", intermediate_size, inner_span) for name in (gate, up)])
            block.down_bias = self._row_parallel_bias(f"{down}.bias", hidden_size)
        return block

    def ignore(self, pattern: str) -> None:
        """A regular expression, matching whole names, of tensors that are known and not needed."""
        self.router.ignore(pattern)

    def load(self, weights: Iterator[Weight]) -> LoadReport:
        """Route every weight to its part; a model may be used only if the report is ok."""
        return self.router.load(weights)

    # -- what parts are made of

    def _linear(self, parts: list[LinearPart], install: Callable[[Any], None]) -> None:
        fused = FusedLinear(parts, packing=self.packing, install=install)
        for part in parts:
            self.router.expect(part.name, Expected(part.shape, fused.accept, present=lambda: fused.present))

    def _biases(self, parts: list[tuple[str, int, Span]]) -> torch.Tensor:
        """One vector of the biases of a fused column-parallel layer; (name, whole size, this rank's part) each."""
        lengths = [rows[1] - rows[0] for _, _, rows in parts]
        bias = torch.empty(sum(lengths), device=self.device, dtype=self.dtype)
        for (name, size, rows), target in zip(parts, torch.split(bias, lengths), strict=True):
            self.router.expect(name, Expected((size,), _bias_sink(target, rows)))
        return bias

    def _row_parallel_bias(self, name: str, size: int) -> torch.Tensor | None:
        """The bias on rank 0, None elsewhere, because the ranks' results are added up; every rank checks the tensor."""
        bias = torch.empty(size, device=self.device, dtype=self.dtype)
        self.router.expect(name, Expected((size,), _bias_sink(bias, (0, size))))
        return bias if self.shard.tp_rank == 0 else None


def _setter(block: PreAttention | PostAttention, field: str) -> Callable[[Any], None]:
    def install(packed: Any) -> None:
        setattr(block, field, packed)

    return install


def _bias_sink(target: torch.Tensor, columns: Span) -> Callable[[Weight], None]:
    def accept(weight: Weight) -> None:
        copy_rows(target, weight, columns=columns)

    return accept
