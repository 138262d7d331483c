"""Runs one forward: a `ForwardBatch` through the model, logits for the rows that are sampled. It keeps no state of rows."""

from __future__ import annotations

import torch

from jackfield.hookspecs import Model, Ops
from jackfield.model_executor.attention_phases import AttentionPhases
from jackfield.model_executor.forward_batch import ForwardBatch
from jackfield.model_executor.forward_context import BatchContext
from jackfield.model_executor.logprobs import StepEntries


class ModelRunner:
    """A loaded model with its operators and attention backends."""

    def __init__(self, model: Model, ops: Ops, attention: AttentionPhases) -> None:
        self._model = model
        self._ops = ops
        self._attention = attention

    def forward(self, batch: ForwardBatch, entries: StepEntries | None = None) -> torch.Tensor:
        """Logits float32 [m, vocab] of the sampled rows' last new tokens, in batch order.

        The vocabulary is the widest matrix of a small model: no other token is projected, but for those whose successors'
        log-probabilities are wanted; these are added to `entries`.
        """
        backend, plan = self._attention.plan(batch.attention)
        context = BatchContext(batch.positions, self._ops, backend, plan)
        hidden = self._model.forward(batch.ids, context)
        if entries is not None and len(entries.places):
            entries.add_prompt(hidden, lambda some: self._model.logits(some, context))
        return self._model.logits(hidden.index_select(0, batch.last_tokens), context)
