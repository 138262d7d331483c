"""Logits processor `no-repeat-ngram`: the rule of transformers' `no_repeat_ngram_size`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from jackfield.hookspecs import LogitsProcessor, LogitsProcessorContext, hookimpl
from jackfield_sampling_processors.histories import HistoryProcessor

if TYPE_CHECKING:
    import torch


class NoRepeatNgramParameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ngram_size: int = Field(ge=1, le=1024, description="No n-gram of so many tokens comes twice.")


def completing(history: NDArray[np.int32], size: int) -> NDArray[np.int32]:
    """The ids that would complete an n-gram which `history` [n] holds already."""
    if len(history) < size:
        return history[:0]
    ngrams = sliding_window_view(history, size)
    begun = history[len(history) - size + 1 :]
    found: NDArray[np.int32] = ngrams[(ngrams[:, :-1] == begun).all(axis=1), -1]
    return found


class NoRepeatNgram(HistoryProcessor[NoRepeatNgramParameters]):
    """On the host, which is where the logits are."""

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        for i, row in enumerate(rows.tolist()):
            banned = completing(self._histories.of(row), self._params[row].ngram_size)
            logits[i, banned.tolist()] = float("-inf")


@hookimpl
def jackfield_logits_processor(context: LogitsProcessorContext) -> LogitsProcessor:
    if context.device.partition(":")[0] == "cpu":
        return NoRepeatNgram()
    from jackfield_sampling_processors.device_ngrams import DeviceNgrams

    return DeviceNgrams(context.max_rows, context.device)
