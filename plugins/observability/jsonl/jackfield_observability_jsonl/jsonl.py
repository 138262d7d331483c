"""Entry point of the observer `jsonl`: turns the lifecycle records into lines.

Hooks other than `process_started` do not say for which use of the plugin they are called, so a process has one log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jackfield.hookspecs import (
    BatchScheduled,
    ObserverContext,
    PassedOver,
    ProcessInfo,
    RequestFinished,
    RequestLife,
    RequestReceived,
    StepDecision,
    StepRecord,
    hookimpl,
)

if TYPE_CHECKING:
    from jackfield_observability_jsonl.run_log import RunLog


class _State:
    """log: the process's log while somebody uses it; uses: how many started and did not stop yet."""

    log: RunLog | None = None
    uses: int = 0


@hookimpl
def jackfield_process_started(context: ObserverContext) -> None:
    from jackfield_observability_jsonl.options import JsonlOptions
    from jackfield_observability_jsonl.run_log import RunLog

    options = context.options
    if not isinstance(options, JsonlOptions):
        raise TypeError(f"observer.{context.instance} wants JsonlOptions, got {type(options).__name__}")
    log = _State.log or RunLog(options.directory, steps=options.steps)
    if log.directory != options.directory.absolute() or log.steps != options.steps:
        raise RuntimeError(
            f"observer.{context.instance}: this process logs into {log.directory} with steps={log.steps} already; "
            "one process can have one log"
        )
    log.open(context.process)
    _State.log = log
    _State.uses += 1


@hookimpl
def jackfield_process_stopping(process: ProcessInfo) -> None:
    if _State.log is None:
        return
    _State.uses -= 1
    if _State.uses == 0:
        log, _State.log = _State.log, None
        log.close(process)


@hookimpl
def jackfield_requests_received(requests: Sequence[RequestReceived]) -> None:
    _log().write("requests.jsonl", [_received(request) for request in requests])


@hookimpl
def jackfield_requests_finished(requests: Sequence[RequestFinished]) -> None:
    _log().write("requests.jsonl", [_finished(request) for request in requests])


@hookimpl
def jackfield_batch_scheduled(batch: BatchScheduled) -> None:
    log = _log()
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
def jackfield_batch_committed(record: StepRecord) -> None:
    log = _log()
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
def jackfield_step_decided(decision: StepDecision) -> None:
    log = _log()
    if log.keeps("steps.jsonl"):
        log.write("steps.jsonl", [_decided(decision)])


@hookimpl
def jackfield_requests_explained(lives: Sequence[RequestLife]) -> None:
    _log().write("lives.jsonl", lives)


@hookimpl
def jackfield_requests_retracted(uids: Sequence[int]) -> None:
    _log().write("steps.jsonl", [{"event": "retracted", "uids": list(uids)}])


def _log() -> RunLog:
    if _State.log is None:
        raise RuntimeError("jsonl is called before it was started, or after it was stopped")
    return _State.log


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
