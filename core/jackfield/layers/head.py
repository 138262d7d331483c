"""Vocabulary projection, split over the vocabulary, with its own weight or the embedding's."""

from __future__ import annotations

from typing import Any

import torch

from jackfield.hookspecs import DenseWeight, ForwardContext, Shard, Weight
from jackfield.layers.embedding import VocabEmbedding
from jackfield.layers.linear import FusedLinear, LinearPart, Packing
from jackfield.layers.shards import vocab_share
from jackfield.layers.weight_reader import BLOCK_ELEMENTS, BadWeight, copy_rows


class VocabHead:
    """Implements `Head` with a weight of its own."""

    packed: Any = None

    def __init__(self, vocab_size: int, *, shard: Shard, soft_cap: float | None = None) -> None:
        self.vocab_size = vocab_size
        self.soft_cap = soft_cap
        self.shard = shard
        self.span = vocab_share(vocab_size, shard)

    def install(self, packed: Any) -> None:
        self.packed = packed

    def __call__(self, hidden: torch.Tensor, ctx: ForwardContext) -> torch.Tensor:
        """[n, hidden] -> float32 [n, vocab], the whole vocabulary on every rank."""
        mine = ctx.ops.logits(hidden, self.packed)
        if self.soft_cap is not None:
            mine = mine.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
        if self.shard.tp_size == 1:
            return mine
        # adding zeros is exact, so that one collective, the sum, serves the gather too
        logits = torch.zeros(hidden.shape[0], self.vocab_size, device=mine.device, dtype=torch.float32)
        logits[:, self.span[0] : self.span[1]] = mine
        return ctx.all_reduce(logits)


class TiedHead(VocabHead):
    """A head that is the embedding. It stays packed for the product when the checkpoint and the operators allow it.

    A tensor under the head's own name is compared with the embedding in the run's dtype; it is then forgotten.
    """

    def __init__(
        self,
        name: str,
        embedding: VocabEmbedding,
        *,
        packing: Packing,
        soft_cap: float | None = None,
    ) -> None:
        super().__init__(embedding.vocab_size, shard=embedding.shard, soft_cap=soft_cap)
        self.name = name
        self.embedding = embedding
        self.packing = packing
        self.duplicate: Weight | None = None

    def accept_embedding(self, weight: Weight) -> None:
        """The embedding's tensor has come, and its table is filled."""
        if weight.encoding != "plain" and (weight.encoding in self.packing.encodings or self.packing.packed_only):
            shape = (self.vocab_size, self.embedding.hidden_size)
            part = LinearPart(name=weight.name, shape=shape, rows=self.span, columns=(0, shape[1]))
            FusedLinear([part], packing=self.packing, install=self.install).accept(weight)
        else:
            table = self.embedding.table
            self.install(
                self.packing.ops.pack(
                    DenseWeight(encoding="plain", out_features=table.shape[0], in_features=table.shape[1], data=table)
                )
            )
        if self.duplicate is not None:
            duplicate, self.duplicate = self.duplicate, None
            self._compare(duplicate)

    def accept_duplicate(self, weight: Weight) -> None:
        """A tensor under the head's own name: compared now, or when the embedding comes. Raises BadWeight."""
        if self.packed is None:
            self.duplicate = weight
        else:
            self._compare(weight)

    def _compare(self, weight: Weight) -> None:
        table = self.embedding.table
        step = max(1, BLOCK_ELEMENTS // table.shape[1])
        for first in range(0, table.shape[0], step):
            mine = table[first : first + step]
            theirs = torch.empty_like(mine)
            start = self.span[0] + first
            copy_rows(theirs, weight, (start, start + mine.shape[0]))
            if not torch.equal(mine, theirs):
                raise BadWeight(
                    f"differs from {self.embedding.name}, although the config ties the two (tie_word_embeddings); "
                    "one of them is wrong: set tie_word_embeddings to false if the head is its own",
                    name=weight.name,
                )
