"""Vocabulary projection, split over the vocabulary, with its own weight or the embedding's."""

from __future__ import annotations

from typing import Any

import torch

from jackfield.hookspecs import ForwardContext, Shard, Weight
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
    """A head that is the embedding, kept once where the operators look up rows in what they packed.

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
        self.first: Weight | None = None
        shape = (self.vocab_size, embedding.hidden_size)
        part = LinearPart(name=embedding.name, shape=shape, rows=self.span, columns=(0, shape[1]))
        self.linear = FusedLinear([part], packing=packing, install=self.install)

    def install(self, packed: Any) -> None:
        super().install(packed)
        if self.packing.ops.looks_up(packed):
            self.embedding.look_up_in(packed)

    def embedding_is_there(self) -> bool:
        """Both came from an earlier run."""
        return self.linear.present and self.embedding.table is not None

    def accept_embedding(self, weight: Weight) -> None:
        """The embedding's tensor: packed for the product, and decoded for lookups if need be. Raises BadWeight."""
        if not self.linear.present:
            self.linear.accept(weight)
        self.embedding.accept(weight)
        self._compare(weight)

    def accept_duplicate(self, weight: Weight) -> None:
        """A tensor under the head's own name: compared now, or when the embedding comes. Raises BadWeight."""
        self._compare(weight)

    def _compare(self, weight: Weight) -> None:
        """The second of the two that comes with the first."""
        if self.first is None:
            self.first = weight
            return
        first, self.first = self.first, None
        width = self.embedding.hidden_size
        step = max(1, BLOCK_ELEMENTS // width)
        for start in range(*self.span, step):
            rows = (start, min(start + step, self.span[1]))
            one, other = (
                torch.empty(rows[1] - start, width, device=self.embedding.device, dtype=self.embedding.dtype)
                for _ in range(2)
            )
            copy_rows(one, first, rows)
            copy_rows(other, weight, rows)
            if not torch.equal(one, other):
                raise BadWeight(
                    f"differs from {self.embedding.name}, although the config ties the two (tie_word_embeddings); "
                    "one of them is wrong: set tie_word_embeddings to false if the head is its own",
                    name=self.name,
                )
