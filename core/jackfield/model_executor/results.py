"""A launched step and the result that comes of it. On a CPU all is done at once; on a GPU the host waits for a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import Launched, SamplingRows, WorkerResult
from jackfield.model_executor.device import Device
from jackfield.model_executor.logits_pipeline import LateCheck
from jackfield.model_executor.logprobs import StepEntries

NOT_FINITE = "the model's output is not a number (NaN or infinity); the request was stopped"


class TorchLaunched(Launched):
    """A forward that was enqueued. Its sampling parameters are those of the moment of the launch.

    logits     float32 [m, vocab] of the rows that are sampled
    sampling   their parameters
    positions  int64 [m] of the token that each of them is about to get
    rows       int32 [n] the batch's rows; owners int64 [n] whose they are
    sampled    int64 [m] batch indices of the sampled rows
    entries    what is computed of log-probabilities; None: no row wants any
    refused    why no forward was begun; "": it was
    pooled     float32 [m, width] of the prompts that end in it; pooled_rows int64 [m] their batch indices
    """

    __slots__ = (
        "entries",
        "logits",
        "order",
        "owners",
        "pooled",
        "pooled_rows",
        "positions",
        "refused",
        "rows",
        "sampled",
        "sampling",
        "step",
    )

    def __init__(
        self,
        *,
        step: int,
        order: int,
        rows: NDArray[np.int32],
        owners: NDArray[np.int64],
        sampled: NDArray[np.int64],
        logits: torch.Tensor | None,
        sampling: SamplingRows | None,
        positions: NDArray[np.int64],
        entries: StepEntries | None = None,
        refused: str = "",
        pooled: torch.Tensor | None = None,
        pooled_rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.refused = refused
        self.pooled = pooled
        self.pooled_rows = pooled_rows
        self.entries = entries
        self.step = step
        self.order = order
        self.rows = rows
        self.owners = owners
        self.sampled = sampled
        self.logits = logits
        self.sampling = sampling
        self.positions = positions


class TorchResult:
    """`PendingResult` of one step. tokens int64 [m] on the device, negative where a row's logits were not finite; failed: batch
    index -> why a row fails, whatever was drawn for it; late: what may fail more of them; pooled, pooled_rows:
    as of `TorchLaunched`."""

    def __init__(
        self,
        device: Device,
        num_rows: int,
        sampled: NDArray[np.int64],
        tokens: torch.Tensor | None,
        entries: StepEntries | None = None,
        failed: Mapping[int, str] | None = None,
        refused: str = "",
        pooled: torch.Tensor | None = None,
        pooled_rows: NDArray[np.int64] | None = None,
        late: Sequence[LateCheck] = (),
    ) -> None:
        self._refused = refused
        self._pooled_rows = pooled_rows
        self._late = tuple(late)
        self._num_rows = num_rows
        self._failed = dict(failed or {})
        self._sampled = sampled
        self._entries = entries
        own = [one for one in (tokens, pooled, *(check.broken for check in late)) if one is not None]
        more = () if entries is None else entries.leave()
        self._download = device.download([*own, *more])
        arriving = iter(self._download.tensors)
        self._tokens = None if tokens is None else next(arriving)
        self._pooled = None if pooled is None else next(arriving)
        self._broken = tuple(next(arriving) for _ in late)
        if entries is not None:
            entries.arrive(tuple(arriving))

    def ready(self) -> bool:
        return self._download.ready()

    def result(self, timeout: float | None = None) -> WorkerResult:
        self._download.wait(timeout)
        self._look()
        if self._plain and (drawn := self._drawn()).min() >= 0:
            return WorkerResult(tokens=drawn.astype(np.int32), starts=np.arange(len(drawn) + 1, dtype=np.int32))
        counts = np.zeros(self._num_rows, dtype=np.int32)
        errors: dict[int, str] = {}
        tokens = np.empty(0, dtype=np.int32)
        if self._tokens is not None:
            drawn = self._drawn()
            good = drawn >= 0
            if self._failed:
                good &= ~np.isin(self._sampled, list(self._failed))
            counts[self._sampled[good]] = 1
            errors = {int(i): self._failed.get(int(i), NOT_FINITE) for i in self._sampled[~good]}
            tokens = drawn[good].astype(np.int32)
        starts = np.zeros(self._num_rows + 1, dtype=np.int32)
        np.cumsum(counts, out=starts[1:])
        pooled: dict[int, NDArray[np.float32]] = {}
        if self._pooled is not None and self._pooled_rows is not None:
            vectors = self._pooled.numpy()
            finite = np.isfinite(vectors).all(axis=1)
            pooled = {int(i): vector for i, vector in zip(self._pooled_rows[finite], vectors[finite], strict=True)}
            errors |= {int(i): NOT_FINITE for i in self._pooled_rows[~finite]}
        logprobs = None
        if self._entries is not None:
            failed = np.zeros(self._num_rows, dtype=np.bool_)
            failed[list(errors)] = True
            logprobs = self._entries.result(self._sampled, failed)
        return WorkerResult(
            tokens=tokens, starts=starts, errors=errors, logprobs=logprobs, refused=self._refused, pooled=pooled
        )

    def _look(self) -> None:
        """The late checks, once."""
        late, self._late = self._late, ()
        for check, broken in zip(late, self._broken if late else (), strict=True):
            rows = self._sampled[check.at[broken.numpy()]].tolist()
            if rows:
                self._failed |= {**dict.fromkeys(rows, check.blame()), **self._failed}

    @property
    def _plain(self) -> bool:
        """Whether every row was sampled and there is nothing else to tell."""
        return (
            self._tokens is not None
            and self._entries is None
            and not self._failed
            and len(self._sampled) == self._num_rows > 0
        )

    def _drawn(self) -> NDArray[np.int64]:
        assert self._tokens is not None
        return self._tokens.numpy()
