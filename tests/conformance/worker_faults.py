"""Workers with one fault each, round a worker that is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from jackfield.hookspecs import (
    KVMover,
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    Moved,
    PendingResult,
    RowOpen,
    WorkerOp,
    WorkerReply,
    WorkerResult,
)


class Pending:
    def __init__(self, inner: PendingResult, worker: Wrapped, batch: ModelWorkerBatch) -> None:
        self._inner, self._worker, self._batch = inner, worker, batch

    def ready(self) -> bool:
        return self._inner.ready()

    def result(self, timeout: float | None = None) -> WorkerResult:
        return self._worker.changed(self._batch, self._inner.result(timeout))


class Wrapped(ModelWorker):
    """Right as it stands. `wrong` says for each row of a batch whether its token is another one."""

    def __init__(self, inner: ModelWorker, fields: dict[str, Any]) -> None:
        self.inner, self.fields = inner, fields
        self.limits = inner.limits
        self.launched: list[ModelWorkerBatch] = []
        self.opened: dict[int, RowOpen] = {}
        self.times: dict[int, int] = {}

    def launch(self, batch: ModelWorkerBatch) -> Launched:
        for one in batch.opened:
            self.opened[one.row] = one
            self.times[one.row] = self.times.get(one.row, 0) + 1
        self.launched.append(batch)
        return self.inner.launch(replace(batch, opened=tuple(self.open(one) for one in batch.opened)))

    def open(self, one: RowOpen) -> RowOpen:
        return one

    def sample(self, launched: Launched, masks: Any = None) -> PendingResult:
        return Pending(self.inner.sample(launched, masks), self, self.launched.pop(0))

    def changed(self, batch: ModelWorkerBatch, result: WorkerResult) -> WorkerResult:
        tokens = result.tokens.copy()
        for i in range(len(batch.rows)):
            if self.wrong(batch, i):
                tokens[result.starts[i] : result.starts[i + 1]] = 7
        return replace(result, tokens=tokens)

    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return False

    def mover(self) -> KVMover | None:
        return self.inner.mover()

    def control(self, op: WorkerOp) -> WorkerReply:
        return self.inner.control(op)

    def close(self) -> None:
        self.inner.close()


class OffersTooManySlots(Wrapped):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.limits = replace(self.limits, total_slots=self.limits.total_slots + self.limits.page_size)


class GivesLongIntegers(Wrapped):
    def changed(self, batch: ModelWorkerBatch, result: WorkerResult) -> WorkerResult:
        return replace(result, tokens=result.tokens.astype(np.int64))


class SamplesMiddleChunks(Wrapped):
    def launch(self, batch: ModelWorkerBatch) -> Launched:
        return super().launch(replace(batch, sample=np.ones_like(batch.sample)))


class IsAlwaysWrong(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return True


class DependsOnChunks(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return bool(batch.computed[i] > 0 and batch.computed[i] < len(self.opened[int(batch.rows[i])].history))


class DependsOnTheBatch(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return len(batch.rows) > 2


class MissesSharedPrefixes(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return bool(batch.computed[i] == 16)


class RemembersRows(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return self.times[int(batch.rows[i])] > 1


class ForgetsOutputs(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return self.opened[int(batch.rows[i])].outputs > 0


class DrawsByRow(Wrapped):
    def open(self, one: RowOpen) -> RowOpen:
        return replace(one, seed=one.seed + one.row)


class DrawsWithoutSeeds(Wrapped):
    def open(self, one: RowOpen) -> RowOpen:
        return replace(one, seed=1)


class TakesThePlaceholder(Wrapped):
    def launch(self, batch: ModelWorkerBatch) -> Launched:
        return super().launch(replace(batch, relay=np.zeros_like(batch.relay)))


class PromisesTooMuch(Wrapped):
    def wrong(self, batch: ModelWorkerBatch, i: int) -> bool:
        return bool(self.fields.get("deterministic")) and len(batch.rows) > 1


class ValuesAboveZero(Wrapped):
    def changed(self, batch: ModelWorkerBatch, result: WorkerResult) -> WorkerResult:
        if result.logprobs is None:
            return result
        return replace(result, logprobs=replace(result.logprobs, top_values=-result.logprobs.top_values[:, ::-1]))


class NoEntriesForChunks(Wrapped):
    def changed(self, batch: ModelWorkerBatch, result: WorkerResult) -> WorkerResult:
        return result if batch.sample.all() else replace(result, logprobs=None)


class IgnoresPenalties(Wrapped):
    def open(self, one: RowOpen) -> RowOpen:
        return replace(one, frequency_penalty=0.0)


class IgnoresBias(Wrapped):
    def open(self, one: RowOpen) -> RowOpen:
        return replace(one, bias_ids=one.bias_ids[:0], bias_values=one.bias_values[:0])


class CountsFromTheReopening(Wrapped):
    def open(self, one: RowOpen) -> RowOpen:
        return replace(one, min_new_tokens=max(0, one.min_new_tokens - one.outputs))


class NextSlot(KVMover):
    def __init__(self, inner: KVMover) -> None:
        self._inner = inner
        self.bytes_per_slot, self.layout = inner.bytes_per_slot, inner.layout

    def read(self, slots: Any) -> int:
        return self._inner.read(slots)

    def write(self, slots: Any, data: Any) -> int:
        return self._inner.write(slots, np.roll(data, 1, axis=0))

    def poll(self) -> list[Moved]:
        return self._inner.poll()

    def wait(self, timeout: float | None) -> None:
        self._inner.wait(timeout)


class MovesKVToTheNextSlot(Wrapped):
    def mover(self) -> KVMover | None:
        inner = self.inner.mover()
        assert inner is not None
        return NextSlot(inner)


class SaysYesToAll(Wrapped):
    def control(self, op: WorkerOp) -> WorkerReply:
        return WorkerReply(ok=True)


class ClosesOnce(Wrapped):
    def close(self) -> None:
        if self.times is None:
            raise RuntimeError("closed already")
        self.times = None  # type: ignore[assignment]


class IgnoresMasks(Wrapped):
    """Its rows get what they would have got."""

    def sample(self, launched: Launched, masks: Any = None) -> PendingResult:
        return super().sample(launched, None)


class PoolsMiddleChunks(Wrapped):
    """Rows whose prompt goes on get values too."""

    def changed(self, batch: ModelWorkerBatch, result: WorkerResult) -> WorkerResult:
        one = next(iter(result.pooled.values()), None)
        return replace(result, pooled={} if one is None else dict.fromkeys(range(len(batch.rows)), one))


class ForgetsTheLength(Wrapped):
    """Vectors are not brought to length 1."""

    def changed(self, batch: ModelWorkerBatch, result: WorkerResult) -> WorkerResult:
        return replace(result, pooled={i: 2 * values for i, values in result.pooled.items()})
