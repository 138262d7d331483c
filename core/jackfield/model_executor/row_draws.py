"""From logits to tokens: what each open row asks of its logits and of its draw, applied in the order of the contract.

It knows rows, logits and tokens; nothing of models, attention or KV.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import ModelWorkerBatch, Ops, ProcessorSource, RowOpen, SamplingRows, TokenMasks
from jackfield.layers.sampler import SamplingTable
from jackfield.layers.token_mask import apply_masks
from jackfield.model_executor.device import Device
from jackfield.model_executor.logits_pipeline import LateCheck, LogitsPipeline
from jackfield.model_executor.logprobs import LogprobTable, StepEntries


class RowDraws:
    """newest   int64 [max_rows] on the device: the newest token that was drawn for each row"""

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        device: Device,
        ops: Ops,
        processors: Sequence[ProcessorSource] = (),
        **context: Any,
    ) -> None:
        """context: further fields of `LogitsProcessorContext`. Raises what making a processor raises."""
        self.newest = torch.zeros(max_rows, dtype=torch.int64, device=device.torch_device)
        self._device, self._ops = device, ops
        self._parameters = SamplingTable(max_rows, vocab_size, device=str(device.torch_device))
        self._logprobs = LogprobTable(max_rows, vocab_size)
        self._pipeline = LogitsPipeline(
            max_rows, vocab_size, str(device.torch_device), processors, looks_late=not device.host, **context
        )

    def check(self, opened: Sequence[RowOpen]) -> None:
        """Raises ValueError for a row that asks for what this run does not have; changes nothing."""
        self._pipeline.check(opened)

    def apply(self, opened: Sequence[RowOpen], closed: NDArray[np.int32]) -> None:
        """Rows end, then others begin."""
        for row in closed.tolist():
            self._parameters.close(row)
            self._logprobs.close(row)
        for one in opened:
            self._parameters.open(one)
            self._logprobs.open(one)
        self._pipeline.close(closed)
        self._pipeline.open(opened)

    def entries(self, batch: ModelWorkerBatch) -> StepEntries | None:
        """What the step must compute of log-probabilities; None: nothing."""
        return self._logprobs.step(batch)

    def parameters(self, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> SamplingRows:
        """How the rows' tokens at these positions are drawn."""
        return self._parameters.rows(rows, positions)

    def draw(
        self,
        logits: torch.Tensor,
        parameters: SamplingRows,
        rows: NDArray[np.int32],
        positions: NDArray[np.int64],
        live: NDArray[np.bool_],
        *,
        sampled: NDArray[np.int64],
        masks: TokenMasks | None = None,
        entries: StepEntries | None = None,
    ) -> torch.Tensor:
        """Tokens int64 [m], -1 for a row whose logits are not finite. logits float32 [m, vocab] are changed; live bool [m]: rows
        that still belong to the request for which they were computed; sampled int64 [m]: their batch indices."""
        if entries is not None:
            entries.keep_raw(logits)
        self._pipeline.apply(logits, rows, positions, live)
        if masks is not None:
            apply_masks(logits, rows, masks)
        tokens = self._ops.sample(logits, parameters)
        if entries is not None:
            entries.add_sampled(tokens, sampled)
        return tokens

    def keep(self, tokens: torch.Tensor, rows: NDArray[np.int32], still: NDArray[np.bool_]) -> None:
        """Keep what was drawn for the rows that are `still` those of their requests. A row that failed relays token 0, if a step
        after it is in flight already: an id like any other, never kept."""
        if self._device.host and not self._pipeline.asked:
            self.newest.numpy()[rows[still]] = np.maximum(tokens.numpy()[still], 0)
            return
        newest = tokens.clamp(min=0)[self._device.upload(still.nonzero()[0], "int64")]
        self.newest[self._device.upload(rows[still], "int64")] = newest
        self._pipeline.tokens(rows[still], newest)

    def keep_nothing(self, rows: NDArray[np.int32]) -> None:
        """Of a step that was refused: these rows relay token 0."""
        self.newest.index_fill_(0, self._device.upload(rows, "int64"), 0)

    def late_checks(self) -> list[LateCheck]:
        """Of the last draw, what is to be looked at with its result."""
        return self._pipeline.late_checks()

    def failed(self, batch_index: NDArray[np.int64], rows: NDArray[np.int32]) -> dict[int, str]:
        """Batch index -> why, for the rows that a logits processor failed."""
        why = self._pipeline.failed
        if not why:
            return {}
        return {i: why[row] for i, row in zip(batch_index.tolist(), rows.tolist(), strict=True) if row in why}
