"""From a worker's entries of one step to what is sent of each request. Only requests that want entries are touched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Logprobs
from jackfield.ipc.messages import LogprobParams, TokenLogprobs
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.request import Request


class BadLogprobs(Exception):
    """Entries that do not match the batch: the worker and the scheduler disagree, the replica cannot go on."""


class StepLogprobs:
    """entries   the worker's; None: it gave none
    wants        [n] rows of the batch that live, did not fail and want entries
    counts       [n] tokens that each row gave
    """

    def __init__(
        self, step: StepInFlight, entries: Logprobs | None, wants: NDArray[np.bool_], counts: NDArray[np.int32]
    ) -> None:
        self._step = step
        self._entries = entries
        self._wants = wants
        self._counts = counts
        if entries is not None and len(entries.starts) != len(wants) + 1:
            raise BadLogprobs(f"entries of {len(entries.starts) - 1} rows came back for a batch of {len(wants)}")

    def prompts(self) -> list[tuple[Request, TokenLogprobs]]:
        """What came of prompts; each request's mark of what is sent moves on. Raises BadLogprobs."""
        found = []
        batch = self._step.batch
        for i in np.flatnonzero(self._wants[: batch.prefills]).tolist():
            request: Request = self._step.requests[i]
            computed = int(self._step.start[i]) + int(batch.new_tokens[i])
            begin, end = request.logprobs_sent, min(computed + 1, len(request.prompt))
            self._check(i, max(0, end - begin), bool(self._step.sample[i]))
            if end > begin:
                first = int(self._entries.starts[i])  # type: ignore[union-attr]
                found.append((request, self._cut(request, first, first + end - begin)))
                request.logprobs_sent = end
        return found

    def outputs(self, i: int, kept: int) -> TokenLogprobs | None:
        """The entries of the first `kept` tokens that batch row i gave; None if its request wants none."""
        if not self._wants[i]:
            return None
        if i >= self._step.batch.prefills:
            self._check(i, 0, True)
        entries = self._entries
        assert entries is not None
        first = int(entries.starts[i]) + int(entries.prompt[i])
        return self._cut(self._step.requests[i], first, first + kept)

    def _check(self, i: int, prompt: int, sampled: bool) -> None:
        entries, given = self._entries, int(self._counts[i]) if sampled else 0
        if entries is None:
            if prompt + given:
                raise BadLogprobs(f"no entries came back, and batch row {i} wants {prompt} + {given}")
            return
        got = int(entries.starts[i + 1] - entries.starts[i])
        if int(entries.prompt[i]) != prompt or got != prompt + given:
            raise BadLogprobs(
                f"{entries.prompt[i]} + {got - entries.prompt[i]} entries came back for batch row {i}, which wants "
                f"{prompt} + {given}"
            )

    def _cut(self, request: Request, begin: int, end: int) -> TokenLogprobs:
        entries = self._entries
        wanted: LogprobParams | None = request.logprobs
        assert entries is not None
        assert wanted is not None
        top = wanted.top
        ids = slice(int(entries.ids_starts[begin]), int(entries.ids_starts[end])) if end > begin else slice(0, 0)
        if ids.stop - ids.start != (end - begin) * len(wanted.ids) or entries.top_ids.shape[1] < top:
            raise BadLogprobs(f"request {request.rid} wants {top} likeliest tokens and {len(wanted.ids)} others")
        return TokenLogprobs(
            chosen=entries.chosen[begin:end].astype("<f4").tobytes(),
            top_values=entries.top_values[begin:end, :top].astype("<f4").tobytes() if top else b"",
            top_ids=entries.top_ids[begin:end, :top].astype("<i4").tobytes() if top else b"",
            ids_values=entries.ids_values[ids].astype("<f4").tobytes(),
        )
