"""Counts what it hears, and writes the counts at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from jackfield.hookspecs import (
    BatchScheduled,
    ObserverContext,
    ProcessInfo,
    RequestFinished,
    RequestReceived,
    StepDecision,
    StepRecord,
    hookimpl,
)


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    file: Path


class Counts:
    def __init__(self, file: Path, role: str) -> None:
        self.file = file
        self.role = role
        self.counts: Counter[str] = Counter()

    @hookimpl
    def jackfield_process_started(self, process: ProcessInfo) -> None:
        self.counts["started"] += process.role == self.role

    @hookimpl
    def jackfield_process_stopping(self, process: ProcessInfo) -> None:
        self.file.write_text(json.dumps(self.counts))

    @hookimpl
    def jackfield_requests_received(self, requests: Sequence[RequestReceived]) -> None:
        self.counts["prompt_tokens"] += sum(request.prompt_tokens for request in requests)

    @hookimpl
    def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
        self.counts["completion_tokens"] += sum(request.completion_tokens for request in requests)

    @hookimpl
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        self.counts["scheduled"] += int(batch.new_tokens.sum())

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        self.counts["committed"] += int(record.tokens.sum())

    @hookimpl
    def jackfield_step_decided(self, decision: StepDecision) -> None:
        self.counts["admitted"] += sum(one.cached is not None for one in decision.chosen)


@hookimpl
def jackfield_observer(context: ObserverContext) -> Counts:
    if not isinstance(context.options, Options):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return Counts(context.options.file, context.process.role)
