"""From a call to requests that may be sent: everything that can be refused is refused here, before the scheduler hears of it.

Changes nothing and sends nothing, so any thread may ask.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.ipc.messages import LogprobParams, SamplingParams, TokenizedGenerateRequest
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import refused
from jackfield.managers.fields.choices import choices_asked
from jackfield.managers.fields.grammar import Grammars
from jackfield.managers.fields.logprobs import LogprobFields, check_prompt_values, prompt_values
from jackfield.managers.fields.sampling_params import Processors, make_sampling_params
from jackfield.managers.fields.tasks import GENERATION, check_task
from jackfield.managers.fields.worker_features import WorkerFeatures
from jackfield.managers.logprobs.entries import CONTEXT, LogprobLog
from jackfield.managers.requests.capacity import check_capacity
from jackfield.managers.requests.checked_request import CheckedRequest
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.requests.pooled_builder import PooledBuilder
from jackfield.managers.requests.pooled_request import AnyRequest, PooledRequest
from jackfield.managers.requests.prompts import Prompt, checked_ids, prompts_of
from jackfield.managers.requests.req_state import ReqState, Wishes
from jackfield.managers.sessions.sessions import Resumption, Sessions
from jackfield.managers.text.text_length import refuse_far_too_long
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.observability.clock import Clock
from jackfield.observability.stages import RequestStage

log = logging.getLogger(__name__)


class RequestBuilder:
    """tokenizer     None: only ids are taken
    sampling_defaults   for what a request leaves out, checked by `check_defaults`
    worker       what the worker can be asked for
    processors   checks a request's `logits_processors`; None: there are none
    grammars     checks what an answer has to keep to; None: this run does none
    weight_version   what the operator calls the weights; told with answers
    """

    def __init__(
        self,
        *,
        tokenizer: Tokenizer | None,
        limits: ReplicaLimits,
        sampling_defaults: Mapping[str, Any],
        worker: WorkerFeatures,
        processors: Processors | None,
        sessions: Sessions,
        clock: Clock,
        grammars: Grammars | None = None,
        weight_version: str = "default",
    ) -> None:
        self._weight_version = weight_version
        self._grammars = grammars
        self._tokenizer = tokenizer
        self._limits = limits
        self._defaults = dict(sampling_defaults)
        self._worker = worker
        self._processors = processors
        self._sessions = sessions
        self._clock = clock
        self._pooled = PooledBuilder(tokenizer=tokenizer, limits=limits, clock=clock)

    def build(self, call: AnyRequest) -> list[CheckedRequest]:
        """Prompt i's answer j of n at i * n + j. Raises RequestError naming the field, for the first part that is refused."""
        if isinstance(call, PooledRequest):
            return self._pooled.build(call)
        check_task(self._limits.pooling, GENERATION)
        if not isinstance(call.stream, bool):
            # Unchecked it would only fail where the scheduler decodes the message, which ends the replica.
            raise RequestError(f"stream must be true or false, not {call.stream!r}", param="stream")
        for name in ("return_prompt_token_ids", "log_metrics"):
            if not isinstance(getattr(call, name), bool | None):
                raise refused(name, "true or false", getattr(call, name))
        prompts = prompts_of(call, has_tokenizer=self._tokenizer is not None, limits=self._limits.requests)
        n = choices_asked([prompt.sampling for prompt in prompts], self._limits.requests)
        resumption = self._resumption(call)
        # One mapping may stand for all prompts, and is checked once.
        sampling: dict[int, SamplingParams] = {}
        for prompt in prompts:
            if id(prompt.sampling) not in sampling:
                sampling[id(prompt.sampling)] = self._sampling(prompt)
        checked = [
            self._check(i * n, prompt, sampling[id(prompt.sampling)], call, resumption)
            for i, prompt in enumerate(prompts)
        ]
        values = sum(
            prompt_values(wanted, len(one.request.input_ids))
            for one in checked
            if (wanted := one.request.logprobs) is not None
        )
        check_prompt_values(values * n, stream=call.stream, limits=self._limits.requests)
        return [choice for one in checked for choice in one.choices(n)]

    def _resumption(self, call: GenerateRequest) -> Resumption | None:
        if call.session_params is None:
            return None
        if call.is_batch:
            raise RequestError(
                "session_params goes with one prompt and one answer; send the turns one by one",
                param="session_params",
            )
        return self._sessions.resume(call.session_params)

    def _check(
        self,
        index: int,
        prompt: Prompt,
        params: SamplingParams,
        call: GenerateRequest,
        resumption: Resumption | None,
    ) -> CheckedRequest:
        began = self._clock.now()
        tokens = self._tokens(prompt, resumption.context if resumption is not None else ())
        granted = check_capacity(
            len(tokens),
            params.max_new_tokens,
            context_length=self._limits.context_length,
            total_slots=self._limits.total_slots,
            page_size=self._limits.page_size,
        )
        wanted = None if prompt.logprobs is None else self._logprobs(prompt.logprobs, len(tokens), granted)
        rid = uuid.uuid4().hex
        state = ReqState(
            rid=rid,
            label=prompt.label if prompt.label is not None else rid,
            index=index,
            prompt_tokens=len(tokens),
            sampling=params,
            stream=call.stream,
            now=began,
            logprobs=None if wanted is None else LogprobLog(wanted, tokens[wanted.start :], tokens[-CONTEXT:]),
            token_text=self._tokenizer.token_text if self._tokenizer and wanted and wanted.texts else None,
            wishes=Wishes(
                prompt_ids=tokens if call.return_prompt_token_ids else None,
                metrics=call.log_metrics is not False,
                weight_version=self._weight_version,
            ),
        )
        state.times.add(RequestStage.TOKENIZE, self._clock.now() - began)
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
            stream=call.stream,
            priority=prompt.scheduling.priority,
            tenant=prompt.scheduling.tenant,
            deadline=prompt.scheduling.deadline,
            cache_salt=prompt.cache_salt,
            extra_key=prompt.extra_key,
            names=tuple(name for name in (prompt.label, call.call_id) if name is not None),
            logprobs=wanted,
        )
        return CheckedRequest(request=message, state=state, resumption=resumption, granted=granted)

    def _tokens(self, prompt: Prompt, context: Sequence[int]) -> list[int]:
        """The prompt's ids behind its context's."""
        if prompt.ids is None:
            assert prompt.text is not None
            assert self._tokenizer is not None
            refuse_far_too_long(prompt.text, self._limits.context_length, self._tokenizer.encode)
            param, tokens = "prompt", self._tokenizer.encode(prompt.text)
        else:
            param, tokens = "input_ids", checked_ids(prompt.ids, self._limits.vocab_size, self._limits.context_length)
        if context and self._tokenizer is not None and tokens[:1] == [self._tokenizer.bos_token_id]:
            tokens = tokens[1:]  # a text begins once
        if not tokens:
            raise RequestError(f"{param} is empty: a request needs at least one token", param=param)
        return [*context, *tokens] if context else tokens

    def _sampling(self, prompt: Prompt) -> SamplingParams:
        params = make_sampling_params(
            prompt.sampling,
            defaults=self._defaults,
            vocab_size=self._limits.vocab_size,
            limits=self._limits.requests,
            processors=self._processors,
            grammars=self._grammars,
        )
        self._worker.check(params)
        if self._tokenizer is None:
            for name, given in (("stop", params.stop), ("stop_regex", params.stop_regex)):
                if given:
                    raise RequestError(f"{name} needs a tokenizer, and this run has none", param=name)
        return params

    def _logprobs(self, fields: LogprobFields, prompt_tokens: int, granted: int) -> LogprobParams:
        wanted = fields.params(
            prompt_tokens=prompt_tokens,
            new_tokens=granted,
            vocab_size=self._limits.vocab_size,
            limits=self._limits.requests,
        )
        self._worker.check_logprobs(prompt=wanted.start + 1 < prompt_tokens)
        if wanted.texts and self._tokenizer is None:
            raise RequestError("texts need a tokenizer, and this run has none", param="return_text_in_logprobs")
        return wanted
