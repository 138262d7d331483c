"""The main process's end of every request: validate, tokenize, hand over, collect what comes back.

It never blocks and owns no thread: whoever drives it calls `step`. Everything that can be refused is refused here,
before the scheduler hears of it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jackfield.hookspecs.observer import RequestFinished, RequestReceived
from jackfield.ipc.channels import Receiver, Sender
from jackfield.ipc.dispatcher import Dispatcher
from jackfield.ipc.messages import (
    AbortRequest,
    BatchTextOutput,
    ControlReply,
    FinishReason,
    FlushCacheRequest,
    PluginReport,
    SchedulerReport,
    StateRequest,
    StopRequest,
    TokenizedGenerateRequest,
    WarmUpRequest,
    WhyRequest,
)
from jackfield.managers.cache_salt import cache_salts
from jackfield.managers.capacity import check_capacity
from jackfield.managers.choices import asks_for_several, choice_label, choice_seed, choices_asked
from jackfield.managers.errors import RequestError, shown
from jackfield.managers.logprob_entries import CONTEXT, LogprobLog
from jackfield.managers.logprob_fields import LogprobFields, logprob_fields
from jackfield.managers.req_state import ReqState, finish_type
from jackfield.managers.request_metrics import RequestMetrics
from jackfield.managers.sampling_params import Processors, make_sampling_params
from jackfield.managers.scheduling_fields import SchedulingFields, scheduling_fields
from jackfield.managers.sessions import Resumption, Sessions
from jackfield.managers.tokenizer import Tokenizer
from jackfield.managers.worker_features import WorkerFeatures
from jackfield.observability.clock import Clock
from jackfield.observability.stages import RequestStage
from jackfield.stack.observers import ObserverHub

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """One call of the API, single or batch, as a client sent it; nothing in it has been checked.

    prompt             text, or a list of texts
    input_ids          ids, or a list of id lists; exactly one of prompt and input_ids
    sampling_params    a mapping, or one a prompt; `n` above 1 makes n answers of each prompt
    rid                the client's own id, or one a prompt; with n above 1 the answers have it with their number
    call_id            a further id by which people know the call: X-Request-Id
    cache_salt         see `cache_salt`, or one a prompt
    priority, tenant, deadline_s   see `scheduling_fields`, or one a prompt
    session_params     a mapping, see `session_params`; for one prompt with one answer
    return_logprob .. return_text_in_logprobs   see `logprob_fields`, or one a prompt (but the last)
    """

    prompt: str | Sequence[str] | None = None
    input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None
    sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    stream: bool = False
    rid: str | Sequence[str] | None = None
    call_id: str | None = None
    cache_salt: str | Sequence[str | None] | None = field(default=None, repr=False)
    priority: int | Sequence[int | None] | None = None
    tenant: str | Sequence[str | None] | None = None
    deadline_s: float | Sequence[float | None] | None = None
    session_params: Mapping[str, Any] | None = None
    return_logprob: bool | Sequence[bool | None] | None = None
    logprob_start_len: int | Sequence[int | None] | None = None
    top_logprobs_num: int | Sequence[int | None] | None = None
    token_ids_logprob: Sequence[int] | Sequence[Sequence[int] | None] | None = None
    return_text_in_logprobs: bool | None = None

    @property
    def is_batch(self) -> bool:
        """True for a list of prompts, even of one, and for several answers to one: then the answer is a list."""
        if asks_for_several(self.sampling_params):
            return True
        if self.prompt is not None:
            return not isinstance(self.prompt, str)
        given = self.input_ids
        return isinstance(given, Sequence) and bool(given) and isinstance(given[0], Sequence)


@dataclass(frozen=True, kw_only=True)
class ReplicaLimits:
    """What the scheduler said it can hold. vocab_size: valid ids are 0 .. vocab_size - 1.

    max_answers   most answers of one call with n above 1
    """

    context_length: int
    total_slots: int
    page_size: int
    vocab_size: int
    max_answers: int = 1024


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """A request that may be sent, and the state that will fill up.

    resumption   for a turn of a session
    granted      most tokens of its answer
    """

    request: TokenizedGenerateRequest
    state: ReqState
    resumption: Resumption | None = None
    granted: int = 0


class TokenizerManager:
    """`submit` returns the states that fill up as `step` is called; `rid_to_state` holds the live ones.

    on_news    called by `step` with the states that changed, once a message
    on_report  called by `step` with the scheduler's reports; on_plugins: with those of other processes
    sessions   the open ones; any thread may use them
    busy_since   when the first of the requests that are open now was handed over; None while none is. Any thread may read
               it without the lock
    lock       `step` holds it for each message; whoever uses the manager from another thread than that of `step` holds it
               round `dispatch`, `abort`, control requests and reading states. Reentrant: a finalizer that ends a request
               may run on a thread that is inside
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer | None,
        limits: ReplicaLimits,
        sampling_defaults: Mapping[str, Any],
        worker: WorkerFeatures | None = None,
        processors: Processors | None = None,
        to_scheduler: Sender,
        inbox: Receiver,
        clock: Clock,
        observers: ObserverHub | None = None,
        metrics: RequestMetrics | None = None,
        on_news: Callable[[Sequence[ReqState]], None] | None = None,
        on_report: Callable[[SchedulerReport], None] | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self.sessions = sessions if sessions is not None else Sessions(clock)
        self.on_news = on_news
        self.on_report = on_report
        self.on_plugins: Callable[[PluginReport], None] | None = None
        self.busy_since: float | None = None
        self.lock = threading.RLock()
        self.tokenizer = tokenizer
        self.limits = limits
        self.rid_to_state: dict[str, ReqState] = {}
        self._labels: dict[str, int] = {}
        self._defaults = dict(sampling_defaults)
        self._worker = worker or WorkerFeatures()
        self._processors = processors
        self._to_scheduler = to_scheduler
        self._inbox = inbox
        self._clock = clock
        self._observers = observers
        self._metrics = metrics
        self._warming = False
        self._control_ids = itertools.count(1)
        self._replies: dict[int, ControlReply | None] = {}
        self._dispatch = Dispatcher(
            {
                BatchTextOutput: self._on_text,
                ControlReply: self._on_reply,
                SchedulerReport: self._on_report,
                PluginReport: self._on_plugins,
            }
        )

    # requests

    def submit(self, request: GenerateRequest) -> list[ReqState]:
        """Check all of a call, then hand all of it over; nothing is sent if any part is refused.

        Raises RequestError naming the field.
        """
        return self.dispatch(self.prepare(request))

    def prepare(self, request: GenerateRequest) -> list[CheckedRequest]:
        """Validate and tokenize. Changes no shared state, so any thread may do it beside `step`."""
        if not isinstance(request.stream, bool):
            # Unchecked it would only fail where the scheduler decodes the message, which ends the replica.
            raise RequestError(f"stream must be true or false, not {request.stream!r}", param="stream")
        texts, id_lists = self._prompts(request)
        count = len(id_lists if id_lists is not None else texts or ())
        sampling = _spread(request.sampling_params, count, "sampling_params", Mapping) or [{}] * count
        n = choices_asked(sampling, most_together=self.limits.max_answers)
        labels = _spread(request.rid, count, "rid", str)
        salts = cache_salts(request.cache_salt, count)
        scheduling = scheduling_fields(request.priority, request.tenant, request.deadline_s, count)
        resumption = None
        if request.session_params is not None:
            if request.is_batch:
                raise RequestError(
                    "session_params goes with one prompt and one answer; send the turns one by one",
                    param="session_params",
                )
            resumption = self.sessions.resume(request.session_params)
        logprobs = logprob_fields(
            request.return_logprob,
            request.logprob_start_len,
            request.top_logprobs_num,
            request.token_ids_logprob,
            request.return_text_in_logprobs,
            count,
        )
        checked = [
            self._check(
                index=i * n,
                text=texts[i] if texts is not None else None,
                ids=id_lists[i] if id_lists is not None else None,
                sampling=sampling[i],
                label=labels[i] if labels is not None else None,
                cache_salt=salts[i],
                scheduling=scheduling[i],
                stream=request.stream,
                call_id=request.call_id,
                resumption=resumption,
                logprobs=logprobs[i],
            )
            for i in range(count)
        ]
        return checked if n == 1 else [_choice(one, j, n) for one in checked for j in range(n)]

    def dispatch(self, checked: Sequence[CheckedRequest]) -> list[ReqState]:
        """Hand prepared requests to the scheduler."""
        names = [name for one in checked for name in one.state.own_names]
        if len(set(names)) < len(names) or not self._labels.keys().isdisjoint(names):
            raise RequestError("rid is used twice, or by a request that is still running", param="rid")
        self._begin_turns(checked)
        alone = not self.rid_to_state
        if alone:
            # Before observers hear of it: one that never returns stops every request, and health must tell.
            self.busy_since = self._clock.now()
        try:
            # Before anything is sent, because an observer's error may come through it, and nobody would own what was sent.
            self._tell_received(checked)
        except BaseException:
            if alone:
                self.busy_since = None
            for one in checked:
                self._end_turn(one.state)
            raise
        for one in checked:
            self.rid_to_state[one.state.rid] = one.state
            for name in one.state.names:
                self._labels[name] = self._labels.get(name, 0) + 1
            self._to_scheduler.send(one.request)
        return [one.state for one in checked]

    def abort(self, state: ReqState, message: str | None = None) -> None:
        """Ask the scheduler to end it; the state stays until the scheduler has answered. message: told to the client."""
        if not state.closed and not state.abort_sent:
            state.abort_sent = True
            reason = None if message is None else FinishReason(type="abort", message=message)
            self._to_scheduler.send(AbortRequest(rid=state.rid, reason=reason))

    def _begin_turns(self, checked: Sequence[CheckedRequest]) -> None:
        for one in checked:
            if (resumption := one.resumption) is not None:
                prompt = one.request.input_ids[len(resumption.context) :]
                one.state.turn = self.sessions.begin(resumption, one.state.label, prompt, one.granted)

    def _end_turn(self, state: ReqState) -> None:
        """With the answer if it has a complete one."""
        if state.turn is not None:
            answered = state.finish is not None and state.finish.type in ("stop", "length")
            self.sessions.end(state.turn, state.output_ids if answered else None)

    def labelled(self, label: str) -> list[ReqState]:
        """The live requests that a client knows under this id: one, all choices of one prompt, or none."""
        return [state for state in self.rid_to_state.values() if label in state.names and state.finish is None]

    # control

    def flush_cache(self, timeout: float = 0.0) -> int:
        """Send the request; `reply` has the answer once it came. timeout: seconds for which it may wait for an idle
        scheduler."""
        control_id = next(self._control_ids)
        self._replies[control_id] = None
        self._to_scheduler.send(FlushCacheRequest(control_id=control_id, timeout=timeout))
        return control_id

    def request_state(self) -> int:
        control_id = next(self._control_ids)
        self._replies[control_id] = None
        self._to_scheduler.send(StateRequest(control_id=control_id))
        return control_id

    def why(self, name: str) -> int:
        """Ask for the lives of the requests that are known under this id."""
        control_id = next(self._control_ids)
        self._replies[control_id] = None
        self._to_scheduler.send(WhyRequest(control_id=control_id, name=name))
        return control_id

    def begin_warm_up(self) -> int:
        """Until the end, no observer and no metric hears of a request."""
        self._warming = True
        return self._warm_up(begin=True)

    def end_warm_up(self) -> int:
        """The prefix cache is flushed as well; not ok while a request is open."""
        self._warming = False
        return self._warm_up(begin=False)

    def _warm_up(self, *, begin: bool) -> int:
        control_id = next(self._control_ids)
        self._replies[control_id] = None
        self._to_scheduler.send(WarmUpRequest(control_id=control_id, begin=begin))
        return control_id

    def has_reply(self, control_id: int) -> bool:
        return self._replies.get(control_id) is not None

    def reply(self, control_id: int) -> ControlReply | None:
        """The answer to a control request, once; None while it is not there."""
        if self._replies[control_id] is None:
            return None
        return self._replies.pop(control_id)

    # messages

    def step(self) -> int:
        """Handle what waits. Returns how many messages there were."""
        handled = 0
        while (message := self._inbox.receive()) is not None:
            with self.lock:
                self._dispatch(message)
            handled += 1
        return handled

    def _on_text(self, message: BatchTextOutput) -> None:
        finished = []
        changed = []
        grown = []
        now = self._clock.now()
        for output in message.outputs:
            state = self.rid_to_state.get(output.rid)
            if state is None:
                log.warning("output for a request that is not known here: %s", output.rid)
                continue
            was_open = state.finish is None
            tokens_before = len(state.output_ids)
            state.take(output, now)
            if (tokens := len(state.output_ids) - tokens_before) > 0:
                grown.append((state, tokens))
            changed.append(state)
            if output.stop_scheduler:
                self._to_scheduler.send(StopRequest(rid=state.rid))
            if was_open and state.finish is not None:
                self._forget_names(state)
            if state.closed:
                # Counters and stage times of the scheduler come with its last word, so this is the moment to tell.
                del self.rid_to_state[state.rid]
                self._end_turn(state)
                finished.append(state)
        if finished and not self.rid_to_state:
            self.busy_since = None
        if self._metrics is not None and not self._warming:
            if grown:
                self._metrics.progressed(grown, now)
            if finished:
                self._metrics.ended(finished, now)
        self._tell_finished(finished)
        if self.on_news is not None and changed:
            self.on_news(changed)

    def _forget_names(self, state: ReqState) -> None:
        for name in state.names:
            self._labels[name] -= 1
            if not self._labels[name]:
                del self._labels[name]

    def _on_reply(self, message: ControlReply) -> None:
        if message.control_id not in self._replies:
            log.warning("an answer to a control request that nobody waits for: %s", message.control_id)
            return
        self._replies[message.control_id] = message

    def _on_plugins(self, message: PluginReport) -> None:
        if self.on_plugins is not None:
            self.on_plugins(message)

    def _on_report(self, message: SchedulerReport) -> None:
        self.sessions.reap()
        if self.on_report is not None:
            self.on_report(message)

    # checks

    def _prompts(self, request: GenerateRequest) -> tuple[list[str] | None, list[Sequence[int]] | None]:
        if (request.prompt is None) == (request.input_ids is None):
            raise RequestError("give exactly one of prompt and input_ids", param="prompt")
        if request.prompt is not None:
            # Neither a mapping nor a set, whose order is not what anybody meant, nor bytes, which are no text.
            if not isinstance(request.prompt, Sequence) or isinstance(request.prompt, bytes | bytearray | memoryview):
                raise RequestError(
                    f"prompt must be text or a list of texts, not {type(request.prompt).__name__}", param="prompt"
                )
            texts = [request.prompt] if isinstance(request.prompt, str) else list(request.prompt)
            if not texts:
                raise RequestError("prompt is an empty list", param="prompt")
            for text in texts:
                if not isinstance(text, str):
                    raise RequestError(
                        f"prompt must be text or a list of texts, not {type(text).__name__}", param="prompt"
                    )
            if self.tokenizer is None:
                raise RequestError("this run has no tokenizer (--skip-tokenizer-init): send input_ids", param="prompt")
            return texts, None
        given: Any = request.input_ids
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise RequestError("input_ids must be a list of ids, or a list of such lists", param="input_ids")
        if not given:
            raise RequestError("input_ids is empty: a request needs at least one token", param="input_ids")
        lists = list(given) if isinstance(given[0], Sequence) else [given]
        for ids in lists:
            if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
                raise RequestError("input_ids mixes ids and lists of ids", param="input_ids")
        return None, lists

    def _check(
        self,
        *,
        index: int,
        text: str | None,
        ids: Sequence[int] | None,
        sampling: Mapping[str, Any],
        label: str | None,
        cache_salt: str | None,
        scheduling: SchedulingFields,
        stream: bool,
        call_id: str | None,
        resumption: Resumption | None,
        logprobs: LogprobFields | None,
    ) -> CheckedRequest:
        began = self._clock.now()
        param = "prompt" if ids is None else "input_ids"
        if ids is None:
            assert text is not None
            assert self.tokenizer is not None
            tokens = self.tokenizer.encode(text)
        else:
            tokens = self._check_ids(ids)
        context = resumption.context if resumption is not None else ()
        if context and self.tokenizer is not None and tokens[:1] == [self.tokenizer.bos_token_id]:
            tokens = tokens[1:]  # a text begins once
        if not tokens:
            raise RequestError(f"{param} is empty: a request needs at least one token", param=param)
        tokens = [*context, *tokens] if context else tokens
        params = make_sampling_params(
            sampling, defaults=self._defaults, vocab_size=self.limits.vocab_size, processors=self._processors
        )
        self._worker.check(params)
        granted = check_capacity(
            len(tokens),
            params.max_new_tokens,
            context_length=self.limits.context_length,
            total_slots=self.limits.total_slots,
            page_size=self.limits.page_size,
        )
        wanted = None
        if logprobs is not None:
            wanted = logprobs.params(prompt_tokens=len(tokens), new_tokens=granted, vocab_size=self.limits.vocab_size)
            self._worker.check_logprobs(prompt=wanted.start + 1 < len(tokens))
            if wanted.texts and self.tokenizer is None:
                raise RequestError("texts need a tokenizer, and this run has none", param="return_text_in_logprobs")
        rid = uuid.uuid4().hex
        state = ReqState(
            rid=rid,
            label=label if label is not None else rid,
            index=index,
            prompt_tokens=len(tokens),
            sampling=params,
            stream=stream,
            now=began,
            logprobs=None if wanted is None else LogprobLog(wanted, tokens[wanted.start :], tokens[-CONTEXT:]),
            token_text=self.tokenizer.token_text if self.tokenizer and wanted and wanted.texts else None,
        )
        state.times.add(RequestStage.TOKENIZE, self._clock.now() - began)
        if self.tokenizer is None:
            for name, given in (("stop", params.stop), ("stop_regex", params.stop_regex)):
                if given:
                    raise RequestError(f"{name} needs a tokenizer, and this run has none", param=name)
        if granted != params.max_new_tokens:
            log.info(
                "request %r: max_new_tokens %d does not fit beside %d prompt tokens; at most %d will be generated",
                state.label,
                params.max_new_tokens,
                len(tokens),
                granted,
            )
        message = TokenizedGenerateRequest(
            rid=rid,
            input_ids=tokens,
            sampling=params,
            stream=stream,
            priority=scheduling.priority,
            tenant=scheduling.tenant,
            deadline=scheduling.deadline,
            cache_salt=cache_salt,
            names=tuple(name for name in (label, call_id) if name is not None),
            logprobs=wanted,
        )
        return CheckedRequest(request=message, state=state, resumption=resumption, granted=granted)

    def _check_ids(self, ids: Sequence[int]) -> list[int]:
        top = self.limits.vocab_size
        for token in ids:
            if type(token) is not int or not 0 <= token < top:
                raise RequestError(
                    f"input_ids holds {shown(token)}; ids are integers from 0 to {top - 1}", param="input_ids"
                )
        return list(ids)

    # observers

    def _tell_received(self, checked: Sequence[CheckedRequest]) -> None:
        if self._warming:
            return
        if self._metrics is not None:
            self._metrics.received(len(checked))
        if self._observers is None or not self._observers.listens("jackfield_requests_received"):
            return
        self._observers.notify(
            "jackfield_requests_received",
            requests=tuple(
                RequestReceived(
                    rid=one.state.label,
                    received_at=one.state.received_at,
                    prompt_tokens=one.state.prompt_tokens,
                    max_new_tokens=one.state.sampling.max_new_tokens,
                    stream=one.state.stream,
                )
                for one in checked
            ),
        )

    def _tell_finished(self, states: Iterable[ReqState]) -> None:
        if self._observers is None or self._warming or not self._observers.listens("jackfield_requests_finished"):
            return
        told = tuple(
            RequestFinished(
                rid=state.label,
                finish_type=finish_type(state.finish),
                prompt_tokens=state.prompt_tokens,
                completion_tokens=len(state.output_ids),
                cached_tokens=state.cached_tokens,
                e2e_latency=(state.finished_at or self._clock.now()) - state.received_at,
                stage_times=state.times.seconds(),
            )
            for state in states
        )
        if told:
            self._observers.notify("jackfield_requests_finished", requests=told)


def _choice(checked: CheckedRequest, choice: int, n: int) -> CheckedRequest:
    """One of the n answers to a prompt that was checked: a request of its own, over the same ids."""
    first = checked.state
    sampling = msgspec.structs.replace(first.sampling, seed=choice_seed(first.sampling.seed, choice))
    rid = checked.request.rid if choice == 0 else uuid.uuid4().hex
    state = ReqState(
        rid=rid,
        label=choice_label(first.label, choice, n),
        index=first.index + choice,
        prompt_tokens=first.prompt_tokens,
        sampling=sampling,
        stream=first.stream,
        now=first.received_at,
        choice=choice,
        call_label=first.label,
        logprobs=None if first.logprobs is None else first.logprobs.fresh(),
        token_text=first.token_text,
    )
    if choice == 0:
        state.times = first.times  # the prompt was tokenized once
    names = (state.label, first.label, *checked.request.names)
    request = msgspec.structs.replace(checked.request, rid=rid, sampling=sampling, names=names)
    return CheckedRequest(request=request, state=state)


def _spread(given: Any, count: int, name: str, kind: type) -> list[Any] | None:
    """One value for all prompts, or one for each."""
    if given is None:
        return None
    if isinstance(given, kind):
        if count > 1 and kind is str:
            raise RequestError(f"{name} must be a list of {count} when there are {count} prompts", param=name)
        return [given] * count
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if len(given) != count:
            raise RequestError(f"{name} has {len(given)} entries for {count} prompts", param=name)
        for entry in given:
            if not isinstance(entry, kind):
                raise RequestError(f"{name} holds a {type(entry).__name__}", param=name)
        return list(given)
    raise RequestError(f"{name} has the wrong type: {type(given).__name__}", param=name)
