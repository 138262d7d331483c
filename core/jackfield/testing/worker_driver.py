"""Drives a `ModelWorker` by hand: the smallest scheduler that keeps the contract, for tests of workers.

It hands out scattered slots, builds `ModelWorkerBatch` deltas and keeps what each request has. It decides nothing: the
test says who advances, by how many tokens, and whose prefix is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jackfield.hookspecs import (
    Launched,
    LogprobSpec,
    ModelWorker,
    ModelWorkerBatch,
    RowOpen,
    RowWrites,
    TokenMasks,
    WorkerResult,
)


@dataclass(kw_only=True, eq=False)
class DrivenRequest:
    """One request. `tokens` are all tokens known to the host; `computed` those whose KV is written or launched."""

    uid: int
    row: int
    tokens: list[int]
    computed: int
    slots: list[int]
    prompt_len: int
    errors: list[str] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_len :]


@dataclass(frozen=True, kw_only=True)
class Advance:
    """Advance `request` by `new` tokens (None: all that are known). relay: the last of them is known to the worker only."""

    request: DrivenRequest
    new: int | None = None
    sample: bool = True
    relay: bool = False


class WorkerDriver:
    """Rows and pages are taken in an order that `seed` shuffles, so that neither is ever contiguous by luck."""

    def __init__(self, worker: ModelWorker, *, seed: int = 0) -> None:
        self.worker = worker
        limits = worker.limits
        random = np.random.default_rng(seed)
        self._page_size = limits.page_size
        self._free_pages = [int(p) + 1 for p in random.permutation(limits.total_slots // limits.page_size)]
        self._free_rows = [int(r) + 1 for r in random.permutation(limits.max_rows - 1)]
        self._opened: list[RowOpen] = []
        self._closed: list[int] = []
        self._writes: list[tuple[int, int, list[int]]] = []
        self._step = 0
        self._uid = 0

    def open(
        self,
        tokens: Sequence[int],
        *,
        share: DrivenRequest | None = None,
        shared_len: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        row: int | None = None,
        logprobs: LogprobSpec | None = None,
        **more: Any,
    ) -> DrivenRequest:
        """Open a row for a prompt; its first `shared_len` tokens (whole pages) take `share`'s slots and count as computed.
        more: further fields of `RowOpen`, for workers that declare them."""
        if shared_len % self._page_size:
            raise ValueError("a shared prefix is whole pages")
        if row is None:
            row = self._free_rows.pop()
        else:
            self._free_rows.remove(row)
        self._uid += 1
        request = DrivenRequest(
            uid=self._uid, row=row, tokens=list(tokens), computed=shared_len, slots=[], prompt_len=len(tokens)
        )
        if share is not None and shared_len:
            self._write(request, share.slots[:shared_len])
        self._opened.append(
            RowOpen(
                row=row,
                uid=request.uid,
                history=np.array(tokens, dtype=np.int32),
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                seed=seed,
                logprobs=logprobs,
                **more,
            )
        )
        return request

    def close(self, request: DrivenRequest, *, keep_slots: bool = False) -> None:
        """End a row; its pages become free at once unless another request shares them (`keep_slots`)."""
        self._closed.append(request.row)
        self._free_rows.append(request.row)
        if not keep_slots:
            self._free_pages.extend(dict.fromkeys(slot // self._page_size for slot in request.slots))

    def batch(self, advances: Sequence[Advance], **changes: Any) -> ModelWorkerBatch:
        """The next batch; takes all deltas that wait, and moves `computed`."""
        rows, new_tokens, computed, ids = [], [], [], []
        for advance in advances:
            request = advance.request
            known = len(request.tokens) - request.computed
            new = known + advance.relay if advance.new is None else advance.new
            mine = request.tokens[request.computed : request.computed + new]
            ids += mine + [0] * (new - len(mine))
            rows.append(request.row)
            new_tokens.append(new)
            computed.append(request.computed)
            request.computed += new
            self._reserve(request)
        self._step += 1
        fields: dict[str, Any] = {
            "step": self._step,
            "rows": np.array(rows, dtype=np.int32),
            "new_tokens": np.array(new_tokens, dtype=np.int32),
            "computed": np.array(computed, dtype=np.int32),
            "token_ids": np.array(ids, dtype=np.int32),
            "relay": np.array([a.relay for a in advances], dtype=np.bool_),
            "sample": np.array([a.sample for a in advances], dtype=np.bool_),
            "opened": tuple(self._opened),
            "closed": np.array(self._closed, dtype=np.int32),
            "writes": RowWrites(
                rows=np.array([row for row, _, _ in self._writes], dtype=np.int32),
                starts=np.array([start for _, start, _ in self._writes], dtype=np.int32),
                lengths=np.array([len(slots) for _, _, slots in self._writes], dtype=np.int32),
                slots=np.array([slot for _, _, slots in self._writes for slot in slots], dtype=np.int32),
            ),
        }
        self._opened, self._closed, self._writes = [], [], []
        return ModelWorkerBatch(**{**fields, **changes})

    def launch(self, *advances: Advance) -> Launched:
        return self.worker.launch(self.batch(advances))

    def collect(self, launched: Launched, *advances: Advance, masks: TokenMasks | None = None) -> WorkerResult:
        """Sample a launched step and append its tokens."""
        result = self.worker.sample(launched, masks).result()
        for i, advance in enumerate(advances):
            advance.request.tokens += result.tokens[result.starts[i] : result.starts[i + 1]].tolist()
            if i in result.errors:
                advance.request.errors.append(result.errors[i])
        return result

    def step(self, *advances: Advance | DrivenRequest) -> WorkerResult:
        """Launch and collect. A bare request advances by all its known tokens and is sampled."""
        full = [a if isinstance(a, Advance) else Advance(request=a) for a in advances]
        return self.collect(self.launch(*full), *full)

    def generate(self, prompt: Sequence[int], count: int, **sampling: Any) -> list[int]:
        """One request alone from open to close: `count` tokens."""
        request = self.open(prompt, **sampling)
        for _ in range(count):
            self.step(request)
        self.close(request)
        return request.output

    def free_slots(self, count: int) -> list[int]:
        """Slots of free pages that nobody else gets from now on; at least `count` of them, whole pages."""
        slots: list[int] = []
        while len(slots) < count:
            page = self._free_pages.pop()
            slots += range(page * self._page_size, (page + 1) * self._page_size)
        return slots

    def _reserve(self, request: DrivenRequest) -> None:
        slots = self.free_slots(request.computed - len(request.slots))
        if slots:
            self._write(request, slots)

    def _write(self, request: DrivenRequest, slots: list[int]) -> None:
        room = self.worker.limits.max_context - len(request.slots)  # the last page may reach beyond the context
        self._writes.append((request.row, len(request.slots), slots[:room]))
        request.slots += slots
