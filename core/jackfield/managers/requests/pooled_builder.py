"""From a call for embeddings or labels to requests that may be sent: all that can be refused is refused here.

Changes nothing and sends nothing, so any thread may ask.
"""

from __future__ import annotations

import uuid
from typing import Any

from jackfield.hookspecs import Pooling
from jackfield.ipc.messages import SamplingParams, TokenizedGenerateRequest
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import refused, whole
from jackfield.managers.fields.tasks import check_task
from jackfield.managers.requests.capacity import check_capacity
from jackfield.managers.requests.checked_request import CheckedRequest
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.requests.pooled_request import PooledRequest
from jackfield.managers.requests.prompts import Prompt, checked_ids, prompts_of
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.text.pairs import NO_TYPES, encode_whole
from jackfield.managers.text.text_length import enough_of, refuse_far_too_long
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.observability.clock import Clock
from jackfield.observability.stages import RequestStage

PREFILL_ONLY = SamplingParams(max_new_tokens=0, temperature=0.0)


class PooledBuilder:
    """tokenizer   None: only ids are taken"""

    def __init__(self, *, tokenizer: Tokenizer | None, limits: ReplicaLimits, clock: Clock) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._clock = clock

    def build(self, call: PooledRequest) -> list[CheckedRequest]:
        """Prompt i's request at i. Raises RequestError naming the field, for the first part that is refused."""
        pooling = self._limits.pooling
        check_task(pooling, call.kind)
        assert pooling is not None
        check_dimensions(call.dimensions, pooling)
        most = self._most(call.truncate)
        prompts = prompts_of(call.prompts, has_tokenizer=self._tokenizer is not None, limits=self._limits.requests)
        second = self._second(call, pooling, len(prompts))
        return [self._check(i, prompt, second[i], call, most) for i, prompt in enumerate(prompts)]

    def _most(self, truncate: Any) -> int | None:
        """Tokens that are kept of a prompt; None: all."""
        longest = self._limits.context_length
        if truncate is None:
            return None
        asked = whole("truncate_prompt_tokens", truncate, -1, 2**31 - 1)
        if asked == 0 or asked > longest:
            raise RequestError(
                f"truncate_prompt_tokens is {asked}; it is -1 (as many as the model takes), or from 1 to its context length, "
                f"{longest}",
                param="truncate_prompt_tokens",
            )
        return longest if asked == -1 else asked

    def _second(self, call: PooledRequest, pooling: Pooling, count: int) -> list[str | None]:
        if call.second is None:
            return [None] * count
        if not pooling.pairs:
            raise RequestError("the model that is served takes single texts, no pairs", code="not_supported")
        if call.prompt is None or len(call.second) != count:
            raise ValueError("pairs are made of texts, as many first ones as second ones")
        if self._tokenizer is None:
            raise RequestError(
                "this run has no tokenizer (--skip-tokenizer-init): pairs of texts need one", param="prompt"
            )
        for text in call.second:
            if not isinstance(text, str):
                raise refused("prompt", "text", text)
        return list(call.second)

    def _near(self, text: str, most: int | None) -> str:
        """The text, or what of it matters if only so many tokens are kept. Raises RequestError for one that is far too long."""
        assert self._tokenizer is not None
        if most is not None:
            return enough_of(text, most, self._tokenizer.encode)
        refuse_far_too_long(text, self._limits.context_length, self._tokenizer.encode)
        return text

    def _check(
        self, index: int, prompt: Prompt, second: str | None, call: PooledRequest, most: int | None
    ) -> CheckedRequest:
        began = self._clock.now()
        if prompt.text is not None:
            assert self._tokenizer is not None
            second = None if second is None else self._near(second, most)
            tokens, types = encode_whole(self._tokenizer, self._near(prompt.text, most), second, most=most)
        else:
            ids = prompt.ids or ()
            limits = self._limits
            kept = ids if most is None else ids[:most]
            tokens, types = checked_ids(kept, limits.vocab_size, limits.context_length), NO_TYPES
        if not tokens:
            param = "input_ids" if prompt.text is None else "prompt"
            raise RequestError(f"{param} is empty: a request needs at least one token", param=param)
        check_capacity(
            len(tokens),
            0,
            context_length=self._limits.context_length,
            total_slots=self._limits.total_slots,
            page_size=self._limits.page_size,
        )
        rid = uuid.uuid4().hex
        state = ReqState(
            rid=rid,
            label=prompt.label if prompt.label is not None else rid,
            index=index,
            prompt_tokens=len(tokens),
            sampling=PREFILL_ONLY,
            stream=False,
            now=began,
        )
        state.times.add(RequestStage.TOKENIZE, self._clock.now() - began)
        message = TokenizedGenerateRequest(
            rid=rid,
            input_ids=tokens,
            token_types=types,
            sampling=PREFILL_ONLY,
            priority=prompt.scheduling.priority,
            tenant=prompt.scheduling.tenant,
            deadline=prompt.scheduling.deadline,
            cache_salt=prompt.cache_salt,
            names=tuple(name for name in (prompt.label, call.call_id) if name is not None),
        )
        return CheckedRequest(request=message, state=state)


def check_dimensions(dimensions: Any, pooling: Pooling) -> None:
    """Raises RequestError for a length that the model's vectors cannot be cut to."""
    if dimensions is None:
        return
    wanted = whole("dimensions", dimensions, 1, 2**31 - 1)
    if wanted == pooling.width:
        return
    if not pooling.matryoshka:
        raise RequestError(
            f"the model's vectors have {pooling.width} entries, and its files do not say that they may be cut "
            "(matryoshka_dimensions): leave dimensions out",
            param="dimensions",
            code="not_supported",
        )
    allowed = pooling.dimensions
    if (allowed and wanted not in allowed) or wanted > pooling.width:
        told = f"one of {', '.join(map(str, allowed))}" if allowed else f"from 1 to {pooling.width}"
        raise RequestError(f"dimensions is {wanted}; for this model it is {told}", param="dimensions")
