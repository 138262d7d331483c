"""The observer `jsonl`: turns the lifecycle records into lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jackfield.hookspecs import (
    BatchScheduled,
    PassedOver,
    ProcessInfo,
    RequestFinished,
    RequestLife,
    RequestReceived,
    StackChanged,
    StepDecision,
    StepRecord,
    hookimpl,
)
from jackfield_observability_jsonl.options import JsonlOptions
from jackfield_observability_jsonl.run_log import RunLog


class JsonlObserver:
    """One use of the plugin in one process."""

    def __init__(self, options: JsonlOptions) -> None:
        self._options = options
        self._open: RunLog | None = None

    @property
    def _log(self) -> RunLog:
        if self._open is None:
            raise RuntimeError("jsonl is called before it was started, or after it was stopped")
        return self._open

    @hookimpl
    def jackfield_process_started(self, process: ProcessInfo) -> None:
        log = RunLog(self._options.directory, steps=self._options.steps)
        log.open(process)
        self._open = log

    @hookimpl
    def jackfield_process_stopping(self, process: ProcessInfo) -> None:
        if self._open is not None:
            log, self._open = self._open, None
            log.close(process)

    @hookimpl
    def jackfield_requests_received(self, requests: Sequence[RequestReceived]) -> None:
        self._log.write("requests.jsonl", [_received(request) for request in requests])

    @hookimpl
    def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
        self._log.write("requests.jsonl", [_finished(request) for request in requests])

    @hookimpl
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        log = self._log
        if log.keeps("steps.jsonl"):
            row = {
                "event": "scheduled",
                "step": batch.step,
                "at": batch.at,
                "uids": batch.uids.tolist(),
                "new_tokens": batch.new_tokens.tolist(),
                "computed": batch.computed.tolist(),
                "waiting": batch.waiting,
                "running": batch.running,
                "free_slots": batch.free_slots,
            }
            log.write("steps.jsonl", [row])

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        log = self._log
        if log.keeps("steps.jsonl"):
            row = {
                "event": "committed",
                "step": record.step,
                "started": record.started,
                "ended": record.ended,
                "uids": record.uids.tolist(),
                "tokens": record.tokens.tolist(),
                "admitted": list(record.admitted),
                "finished": list(record.finished),
                "retracted": list(record.retracted),
                "aborted": list(record.aborted),
            }
            log.write("steps.jsonl", [row])

    @hookimpl
    def jackfield_step_decided(self, decision: StepDecision) -> None:
        log = self._log
        if log.keeps("steps.jsonl"):
            log.write("steps.jsonl", [_decided(decision)])

    @hookimpl
    def jackfield_requests_explained(self, lives: Sequence[RequestLife]) -> None:
        self._log.write("lives.jsonl", lives)

    @hookimpl
    def jackfield_stack_changed(self, stack: StackChanged) -> None:
        # In each file: the lines after it are of another stack than its `started` line names.
        self._log.write_to_all({"event": "stack_changed", **asdict(stack)})

    @hookimpl
    def jackfield_requests_retracted(self, uids: Sequence[int]) -> None:
        self._log.write("steps.jsonl", [{"event": "retracted", "uids": list(uids)}])


def _received(request: RequestReceived) -> dict[str, Any]:
    row: dict[str, Any] = {
        "event": "received",
        "rid": request.rid,
        "received_at": request.received_at,
        "prompt_tokens": request.prompt_tokens,
        "max_new_tokens": request.max_new_tokens,
        "stream": request.stream,
    }
    if request.prompt is not None:
        row["prompt"] = request.prompt
    return row


def _finished(request: RequestFinished) -> dict[str, Any]:
    row: dict[str, Any] = {
        "event": "finished",
        "rid": request.rid,
        "finish_type": request.finish_type,
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": request.completion_tokens,
        "cached_tokens": request.cached_tokens,
        "e2e_latency": request.e2e_latency,
        "stage_times": request.stage_times,
    }
    if request.text is not None:
        row["text"] = request.text
    return row


def _decided(decision: StepDecision) -> dict[str, Any]:
    row = {"event": "decided", **asdict(decision)}
    row["passed"] = [_passed(one) for one in decision.passed]
    row["stopped"] = None if decision.stopped is None else _passed(decision.stopped)
    return row


def _passed(one: PassedOver) -> dict[str, Any]:
    return {"uid": one.uid, "reason": one.reason.value, **one.numbers}
