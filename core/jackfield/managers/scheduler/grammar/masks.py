"""The masks of a step's constrained rows, and what a token means for the grammar of its request. A matcher that raises ends
its request, and no other."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import FaultScope, TokenMasks
from jackfield.ipc.messages import FinishReason
from jackfield.managers.grammar.words import LEFT_GRAMMAR
from jackfield.managers.scheduler.batch import StepInFlight
from jackfield.managers.scheduler.grammar.constraint import Constraint, failure
from jackfield.managers.scheduler.request import Request, RequestState
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.stack.errors import PLUGIN_ERRORS
from jackfield.stack.runtime.metering import Meter


class Masker:
    """end_ids: the model's end tokens; plugin: the backend's key in the ledger."""

    def __init__(self, vocab_size: int, end_ids: Collection[int], ledger: Ledger, plugin: str, meter: Meter) -> None:
        self._vocab_size = vocab_size
        self._ends = self._mask(end_ids)
        self._known = self._mask(range(vocab_size))
        self._ledger = ledger
        self._plugin = plugin
        self._fill_one = meter.wrap(plugin, "fill", Constraint.fill)
        self._accept = meter.wrap(plugin, "accept", Constraint.commit)

    def masks(self, step: StepInFlight) -> TokenMasks | None:
        """Of the rows of a step whose earlier steps are committed; None: no row is bound.

        A request that has ended since the launch has none: its token goes nowhere."""
        if step.constrained is None:
            return None
        at = np.flatnonzero(step.constrained).tolist()
        bits = np.empty((len(at), len(self._ends)), dtype=np.uint32)
        rows: list[int] = []
        for i in at:
            request: Request = step.requests[i]
            if request.state is RequestState.RUNNING and self._fill(request, bits[len(rows)]):
                rows.append(int(step.batch.rows[i]))
        return TokenMasks(rows=np.array(rows, dtype=np.int32), bits=bits[: len(rows)]) if rows else None

    def commit(self, request: Request, token: int) -> tuple[bool, FinishReason | None]:
        """(whether the token belongs to the answer, how the request ends by it). Not for a token that ends it anyway."""
        constraint = self._of(request)
        if constraint.over is not None:
            return False, constraint.over
        try:
            finish = self._accept(constraint, token)
        except PLUGIN_ERRORS as error:
            self._ledger.record(self._plugin, FaultScope.REQUEST, error)
            finish = failure(LEFT_GRAMMAR)
        return finish is None or finish.type == "stop", finish

    def _fill(self, request: Request, bits: NDArray[np.uint32]) -> bool:
        constraint = self._of(request)
        if not constraint.bound:
            return False
        held = None
        if len(request.output_ids) < request.sampling.min_new_tokens:
            held = self._mask(request.end_ids.tolist()) | self._ends
        try:
            return self._fill_one(constraint, bits, known=self._known, ends=self._ends, held=held)
        except PLUGIN_ERRORS as error:
            self._ledger.record(self._plugin, FaultScope.REQUEST, error)
            constraint.over = failure(LEFT_GRAMMAR)
            return False

    def _mask(self, ids: Collection[int]) -> NDArray[np.uint32]:
        allowed = np.zeros(-(-self._vocab_size // 32) * 32, dtype=np.bool_)
        allowed[list(ids)] = True
        return np.packbits(allowed, bitorder="little").view(np.uint32)

    @staticmethod
    def _of(request: Request) -> Constraint:
        constraint = request.constraint
        if constraint is None:
            raise RuntimeError(f"request {request.rid} runs without its grammar")
        return constraint
