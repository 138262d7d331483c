"""Decode steps as recorded graphs: which batch goes to which, and its replay.

Recorded of a step: from the block of inputs to the logits of all its rows, padding included. Not recorded: changes of the
tables, what the attention backend's `refresh` does, and sampling. It knows no plugin and no device's library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from jackfield.hookspecs import AttentionPlan, GraphShape, ModelWorkerBatch
from jackfield.model_executor.device import Device, Graph
from jackfield.model_executor.graphs.failures import told
from jackfield.model_executor.graphs.inputs import GraphInputs
from jackfield.model_executor.graphs.reasons import Reason, Tally
from jackfield.model_executor.graphs.sizes import padded
from jackfield.model_executor.logprobs import StepEntries
from jackfield.model_executor.model_runner import ModelRunner
from jackfield.model_executor.out_of_memory import stage
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.window_table import WindowTable

_SMALLER = "lower --mem-fraction-static, --cuda-graph-max-bs or --max-running-requests, or use --disable-cuda-graph"


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    """prepare: from the host's block to the batch's tensors, ahead of `refresh`; step: the rest, whose output is float32
    [rows, vocab]."""

    plan: AttentionPlan
    prepare: Graph
    step: Graph


class DecodeGraphs:
    """off   why there is none; "": there are. sizes: rows of each graph, ascending."""

    def __init__(self, off: str, sizes: tuple[int, ...]) -> None:
        self.off = off
        self.sizes = () if off else sizes
        self._tally = Tally()
        self._recorded: dict[int, _Recorded] = {}
        self._inputs: GraphInputs | None = None
        # [largest size, vocab] for the replays of all sizes: one for each would take as much as the rows of all of them.
        self._logits: torch.Tensor | None = None

    @torch.inference_mode()
    def record(
        self,
        runner: ModelRunner,
        table: ReqToTokenTable,
        tables: Mapping[str, ReqToTokenTable | WindowTable],
        newest: torch.Tensor,
        *,
        max_kv: int,
    ) -> None:
        """Record all sizes, the largest first: its memory serves the others. The KV is bound and in nobody's use.
        Raises GraphFailed, InsufficientMemory."""
        device = table.device
        self._inputs = inputs = GraphInputs(self.sizes[-1], table, tables, newest)
        pool = device.graph_pool()
        for size in reversed(self.sizes):
            with stage(f"recording the decode step of {size} rows", _SMALLER), told(size, runner.attention.decode_name):
                self._recorded[size] = self._record(runner, inputs, device, pool, size, max_kv)

    def _record(
        self, runner: ModelRunner, inputs: GraphInputs, device: Device, pool: object, size: int, max_kv: int
    ) -> _Recorded:
        backend = runner.attention.decode
        batch = inputs.attention(size, inputs.nobody(size))
        prepare = device.capture(lambda: inputs.prepare(size), pool)
        prepare.replay()
        plan = backend.plan_graph(batch, GraphShape(rows=size, max_kv=max_kv))
        backend.refresh(plan, batch)

        def step() -> torch.Tensor:
            backend.in_graph(plan)
            logits = runner.decode(inputs.tokens(size), inputs.positions(size), batch, plan)
            if self._logits is None:  # at the call before the first, and largest, recording
                self._logits = torch.empty_like(logits)
            return self._logits[:size].copy_(logits)

        return _Recorded(plan=plan, prepare=prepare, step=device.capture(step, pool))

    def run(self, runner: ModelRunner, batch: ModelWorkerBatch, entries: StepEntries | None) -> torch.Tensor | None:
        """Logits of all rows, float32 [n, vocab], a tensor of the caller's own; None: this step has no graph. Raises BatchFault
        as `AttentionBackend.refresh` does."""
        if self.off:
            return None
        n = batch.rows.size
        size = padded(n, self.sizes)
        if batch.token_ids.size != n:
            self._tally.without(Reason.PREFILL)
            return None
        if size is None:
            self._tally.without(Reason.ROWS)
            return None
        if entries is not None and len(entries.places):
            self._tally.without(Reason.PROMPT_LOGPROBS)
            return None
        self._tally.steps += 1
        return self.replay(runner, batch, size)

    def replay(self, runner: ModelRunner, batch: ModelWorkerBatch, size: int) -> torch.Tensor:
        """`run` through the graph of that size."""
        assert self._inputs is not None
        recorded = self._recorded[size]
        host = self._inputs.fill(batch, size)
        recorded.prepare.replay()
        runner.attention.decode.refresh(recorded.plan, self._inputs.attention(size, host))
        recorded.step.replay()
        logits: torch.Tensor = recorded.step.outputs
        # The next replay writes its logits into the same memory, and may be launched before this step is sampled.
        return logits[: batch.rows.size].clone()

    def forget(self) -> None:
        """Let go of all recorded work and its memory."""
        self._recorded.clear()
        self._inputs = self._logits = None

    def report(self) -> dict[str, float | int | str | None]:
        """For `ModelWorker.report`."""
        if self.off:
            return {"graphs": self.off}
        return {"graphs": "on", "graph_rows": " ".join(map(str, self.sizes)), **self._tally.numbers()}
