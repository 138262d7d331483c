"""Runs one forward: a `ForwardBatch` through the model, logits for the rows that are sampled. It keeps no state of rows."""

from __future__ import annotations

import torch
from torch.nn import functional

from jackfield.hookspecs import AttentionBatch, AttentionPlan, Model, Ops, Pooling
from jackfield.model_executor.attention_phases import AttentionPhases
from jackfield.model_executor.forward_batch import ForwardBatch
from jackfield.model_executor.forward_context import BatchContext
from jackfield.model_executor.logprobs import StepEntries
from jackfield.model_executor.pooled import PooledRows, last_states


class ModelRunner:
    """A loaded model with its operators and attention backends (`attention`)."""

    def __init__(
        self,
        model: Model,
        ops: Ops,
        attention: AttentionPhases,
        pooling: Pooling | None = None,
        *,
        own_pool: bool = False,
    ) -> None:
        """pooling: what the run gives of prompts; own_pool: by the model's own `pool`, and not by the last hidden state."""
        self._pooling = pooling
        self._own_pool = own_pool
        self._model = model
        self._ops = ops
        self.attention = attention

    def forward(self, batch: ForwardBatch, entries: StepEntries | None = None) -> torch.Tensor:
        """Logits float32 [m, vocab] of the sampled rows' last new tokens, in batch order.

        The vocabulary is the widest matrix of a small model: no other token is projected, but for those whose successors'
        log-probabilities are wanted; these are added to `entries`.
        """
        backend, plan = self.attention.plan(batch.attention)
        writes = self.attention.writes(batch.attention)
        context = BatchContext(batch.positions, self._ops, backend, plan, writes=writes)
        hidden = self._model.forward(batch.ids, context)
        if entries is not None and len(entries.places):
            entries.add_prompt(hidden, lambda some: self._model.logits(some, context))
        if batch.last_tokens is not None:
            hidden = hidden.index_select(0, batch.last_tokens)
        return self._model.logits(hidden, context)

    def decode(
        self, ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, plan: AttentionPlan
    ) -> torch.Tensor:
        """Logits float32 [n, vocab] of a decode batch that is planned already; device work alone, which may be recorded."""
        writes = self.attention.writes(batch)
        context = BatchContext(positions, self._ops, self.attention.decode, plan, writes=writes)
        return self._model.logits(self._model.forward(ids, context), context)

    def pool(self, batch: ForwardBatch, rows: PooledRows) -> torch.Tensor:
        """What the model gives of the prompts that end in this forward, float32 [m, width]; the forward itself is for all."""
        assert self._pooling is not None
        backend, plan = self.attention.plan(batch.attention)
        writes = self.attention.writes(batch.attention)
        context = BatchContext(batch.positions, self._ops, backend, plan, rows.token_types, writes)
        hidden = self._model.forward(batch.ids, context)
        if not len(rows.rows):
            return hidden.new_empty((0, self._pooling.width), dtype=torch.float32)
        if rows.tokens is not None:
            hidden = hidden.index_select(0, rows.tokens)
        found = self._model.pool(hidden, rows.starts, context) if self._own_pool else last_states(hidden, rows.starts)
        if found.shape != (len(rows.rows), self._pooling.width):
            raise RuntimeError(
                f"the model gave pooled values of the shape {tuple(found.shape)} for {len(rows.rows)} prompts; its shape says "
                f"{self._pooling.width} each"
            )
        return functional.normalize(found.float(), dim=-1) if self._pooling.normalize else found.float()
