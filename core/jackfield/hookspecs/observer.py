"""Kind `observer`: its object, and the lifecycle hooks that it hears. Observers watch; they cannot change anything. Each hook
is called at most once a step, with frozen records that are built only when somebody listens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.cache import CacheEvent
from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.decisions import RequestLife, StepDecision
from jackfield.hookspecs.markers import hookspec
from jackfield.hookspecs.schedule_policy import StepRecord


@dataclass(frozen=True, kw_only=True)
class ProcessInfo:
    """role: "main" | "scheduler" | "detokenizer" | "inline"; stack_hash: of the stack at the start, SHA-256, hex."""

    role: str
    pid: int
    stack_hash: str


@dataclass(frozen=True, kw_only=True)
class RequestReceived:
    """A request that passed validation. received_at: seconds on the process's monotonic clock; prompt is None unless the
    observer was granted prompt text."""

    rid: str
    received_at: float
    prompt_tokens: int
    max_new_tokens: int
    stream: bool
    prompt: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestFinished:
    """A request that ended. Times in seconds; finish_type: "stop" | "length" | "abort" | "error", others may come."""

    rid: str
    finish_type: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    e2e_latency: float
    stage_times: Mapping[str, float] = field(default_factory=dict)
    text: str | None = None


@dataclass(frozen=True, kw_only=True)
class BatchScheduled:
    """A batch about to be launched. uids, new_tokens, computed: one entry a request [n]."""

    step: int
    at: float
    uids: NDArray[np.int64]
    new_tokens: NDArray[np.int32]
    computed: NDArray[np.int32]
    waiting: int
    running: int
    free_slots: int


@dataclass(frozen=True, kw_only=True)
class StackChanged:
    """The replica's stack from now on: one plugin took the place of another while it runs.

    epoch            counts up from 0, the stack of the start
    stack_hash, previous_hash   SHA-256, hex
    at               seconds on the scheduler's clock
    step             the newest step that the plugin before decided
    kind, name, instance, distribution, version   the plugin that came; previous: the instance that went
    """

    epoch: int
    stack_hash: str
    previous_hash: str
    at: float
    step: int
    kind: str
    name: str
    instance: str
    distribution: str
    version: str
    previous: str


@dataclass(frozen=True, kw_only=True)
class ObserverContext(PluginContext):
    """process: in which process it is; prompt_text: whether the operator granted prompt text."""

    process: ProcessInfo
    prompt_text: bool = False


class ObserverSpecs:
    @hookspec
    def jackfield_observer(self, context: ObserverContext) -> object:
        """Process: each that the manifest names. When: once, at start. Cost: import here what is heavy.

        Returns the observer: an object of any class that has one or more of the lifecycle hooks below as methods, each
        decorated with `@hookimpl`. Its state is its own, so a stack may use one observer several times under different names.
        An exception stops the start. Example:

            class Count:
                def __init__(self) -> None:
                    self.finished = 0

                @hookimpl
                def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
                    self.finished += len(requests)


            @hookimpl
            def jackfield_observer(context: ObserverContext) -> Count:
                return Count()
        """


class LifecycleSpecs:
    """What an observer may hear: methods of the object that `jackfield_observer` returned. With the inline topology one
    process plays all roles, so each hook is called there. Exceptions are counted and logged once per kind of error; at
    `--plugin-fault-limit` the observer is quarantined, the others go on."""

    @hookspec
    def jackfield_process_started(self, process: ProcessInfo) -> None:
        """Process: each. When: once, after loading and before the first request. Cost: any.

        Open files here. Example:

            @hookimpl
            def jackfield_process_started(self, process: ProcessInfo) -> None:
                self.file = open(f"{process.role}.log", "a")
        """

    @hookspec
    def jackfield_process_stopping(self, process: ProcessInfo) -> None:
        """Process: each. When: once, at an orderly end, for a quarantined observer too. Cost: bounded; flush and close.

        Example:

            @hookimpl
            def jackfield_process_stopping(self, process: ProcessInfo) -> None:
                self.file.close()
        """

    @hookspec
    def jackfield_requests_received(self, requests: Sequence[RequestReceived]) -> None:
        """Process: main. When: after validation and tokenization. How often: once a call of the API, with all its
        requests. Cost: on the request's path, keep it under 50 µs.

        Example:

            @hookimpl
            def jackfield_requests_received(self, requests: Sequence[RequestReceived]) -> None:
                self.tokens += sum(request.prompt_tokens for request in requests)
        """

    @hookspec
    def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
        """Process: main. When: when the answer is complete, all stage times known. How often: at most once a message from
        the detokenizer. Cost: on the path of other requests' tokens, keep it under 50 µs.

        Example:

            @hookimpl
            def jackfield_requests_finished(self, requests: Sequence[RequestFinished]) -> None:
                self.rows.extend((request.rid, request.e2e_latency) for request in requests)
        """

    @hookspec
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        """Process: scheduler. When: before launch. How often: once a step. Cost: adds to every step.

        Example:

            @hookimpl
            def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
                self.rows.append((batch.step, len(batch.uids)))
        """

    @hookspec
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        """Process: scheduler. When: after the results were applied. How often: once a step. Cost: adds to every step.

        Example:

            @hookimpl
            def jackfield_batch_committed(self, record: StepRecord) -> None:
                self.rows.append((record.step, record.ended - record.started))
        """

    @hookspec
    def jackfield_step_decided(self, decision: StepDecision) -> None:
        """Process: scheduler. When: after the results were applied, once for the step, before it for each run of rounds in
        which nobody could run. Cost: adds to every step, and makes the scheduler list all candidates.

        Example:

            @hookimpl
            def jackfield_step_decided(self, decision: StepDecision) -> None:
                if decision.stopped is not None:
                    self.reasons[decision.stopped.reason] += 1
        """

    @hookspec
    def jackfield_requests_explained(self, lives: Sequence[RequestLife]) -> None:
        """Process: scheduler. When: requests have ended or were refused; each life is told once, whole. How often: at most
        once a turn. Cost: adds to such turns.

        Example:

            @hookimpl
            def jackfield_requests_explained(self, lives: Sequence[RequestLife]) -> None:
                self.rows.extend(life["id"] for life in lives)
        """

    @hookspec
    def jackfield_requests_retracted(self, uids: Sequence[int]) -> None:
        """Process: scheduler. When: after running requests gave their memory back. How often: at most once a step. Cost: adds to
        such a step.

        Example:

            @hookimpl
            def jackfield_requests_retracted(self, uids: Sequence[int]) -> None:
                self.retractions += len(uids)
        """

    @hookspec
    def jackfield_cache_events(self, events: Sequence[CacheEvent]) -> None:
        """Process: scheduler. When: after a step in which the prefix cache changed, and in a turn without a
        step if it changed in between (a flush, an abort). How often: at most once a turn. Cost: adds to every such turn.

        Example:

            @hookimpl
            def jackfield_cache_events(self, events: Sequence[CacheEvent]) -> None:
                self.rows.extend((event.action, event.length) for event in events)
        """

    @hookspec
    def jackfield_stack_changed(self, stack: StackChanged) -> None:
        """Process: each. When: after a plugin was swapped while the replica runs, in the scheduler before the next step is
        decided, in the others before they hear of a request that ended under the new stack. How often: once a swap.
        Cost: in the scheduler it adds to one turn.

        Example:

            @hookimpl
            def jackfield_stack_changed(self, stack: StackChanged) -> None:
                self.rows.append((stack.epoch, stack.stack_hash))
        """


LIFECYCLE_HOOKS: tuple[str, ...] = tuple(name for name in vars(LifecycleSpecs) if name.startswith("jackfield_"))
