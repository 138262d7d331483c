"""Logits processor `allow-ids`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allow_ids_processor.models import AllowIdsOptions, AllowIdsParameters
from jackfield.hookspecs import LogitsProcessor, LogitsProcessorContext, LogitsRow, hookimpl

if TYPE_CHECKING:
    import torch


class AllowIds(LogitsProcessor):
    def __init__(self, options: AllowIdsOptions, vocab_size: int) -> None:
        self.options = options
        self.vocab_size = vocab_size
        self.asked: dict[int, AllowIdsParameters] = {}
        self.used: dict[int, Counter[int]] = {}

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        for row in rows:
            self.asked[row.row] = row.params
            # After a retraction a row begins again with what it has.
            self.used[row.row] = Counter(row.history[len(row.history) - row.outputs :].tolist())

    def closed(self, rows: NDArray[np.int32]) -> None:
        for row in rows.tolist():
            del self.asked[row], self.used[row]

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        for row, token in zip(rows.tolist(), ids.tolist(), strict=True):
            self.used[row][token] += 1

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        for i, row in enumerate(rows.tolist()):
            asked, used = self.asked[row], self.used[row]
            if len(asked.ids) > self.options.most_ids:
                raise ValueError(f"{len(asked.ids)} ids, at most {self.options.most_ids} are allowed")
            left = [token for token in asked.ids if asked.most is None or used[token] < asked.most]
            kept = [token for token in left if token < self.vocab_size] or [asked.then]
            values = logits[i, kept].clone()
            logits[i] = float("-inf")
            logits[i, kept] = values


@hookimpl
def jackfield_logits_processor(context: LogitsProcessorContext) -> LogitsProcessor:
    if not isinstance(context.options, AllowIdsOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return AllowIds(context.options, context.vocab_size)
