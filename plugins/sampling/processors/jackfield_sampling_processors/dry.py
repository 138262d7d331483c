"""Logits processor `dry`: "don't repeat yourself", a penalty that grows with the length of the passage that would be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, Strict

from jackfield.hookspecs import LogitsProcessor, LogitsProcessorContext, hookimpl
from jackfield_sampling_processors.histories import HistoryProcessor

if TYPE_CHECKING:
    import torch

LONGEST = 50
DEFAULT_BREAKERS = ("\n", ":", '"', "*")


Id = Annotated[int, Strict(), Field(ge=0, le=2**31 - 1)]


class DryParameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    multiplier: float = Field(ge=0, le=100, allow_inf_nan=False, description="0 is off; 0.8 is usual.")
    base: float = Field(default=1.75, ge=1, le=4, description="How fast the penalty grows with the passage.")
    allowed_length: int = Field(default=2, ge=1, le=LONGEST, description="Passages shorter than this are free.")
    range: int = Field(default=0, ge=0, description="Only so many of the last tokens count; 0: all.")
    breakers: list[Id] | None = Field(default=None, max_length=256, description="Ids at which a passage ends.")


def repeats(history: NDArray[np.int32], breakers: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Each id that followed an earlier occurrence of the last tokens, and how many tokens that passage has, at most LONGEST."""
    if not len(history) or history[-1] in breakers:
        return history[:0], np.empty(0, dtype=np.int64)
    at = np.flatnonzero(history[:-1] == history[-1])  # ends of the earlier occurrences
    length = np.ones(len(at), dtype=np.int64)
    growing = np.arange(len(at))
    for back in range(1, min(LONGEST, len(history))):
        if history[-1 - back] in breakers:
            break
        growing = growing[at[growing] >= back]
        growing = growing[history[at[growing] - back] == history[-1 - back]]
        if not len(growing):
            break
        length[growing] += 1
    return history[at + 1], length


class Dry(HistoryProcessor[DryParameters]):
    """breakers: ids at which a passage ends, for requests that name none."""

    def __init__(self, breakers: Sequence[int]) -> None:
        super().__init__()
        self._breakers = np.array(breakers, dtype=np.int32)

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        for i, row in enumerate(rows.tolist()):
            params = self._params[row]
            breakers = self._breakers if params.breakers is None else np.array(params.breakers, dtype=np.int32)
            followers, length = repeats(self._histories.of(row)[-params.range :], breakers)
            counted = length >= params.allowed_length
            followers, length = followers[counted], length[counted]
            tokens, which = np.unique(followers, return_inverse=True)
            longest = np.zeros(len(tokens), dtype=np.int64)
            np.maximum.at(longest, which, length)  # of several passages before one token the longest counts
            penalties = params.multiplier * np.float64(params.base) ** (longest - params.allowed_length)
            logits[i, tokens.tolist()] -= logits.new_tensor(penalties)


@hookimpl
def jackfield_logits_processor(context: LogitsProcessorContext) -> LogitsProcessor:
    encoded = [context.encode(text) for text in DEFAULT_BREAKERS] if context.encode is not None else []
    return Dry([ids[0] for ids in encoded if len(ids) == 1])
