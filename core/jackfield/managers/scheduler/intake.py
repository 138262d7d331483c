"""What a new request must pass before it may wait: checks that refuse it with a reason, never with a crash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jackfield.ipc.messages import FinishReason, TokenizedGenerateRequest
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.capacity import check_capacity
from jackfield.managers.scheduler.config import SchedulerConfig
from jackfield.managers.scheduler.randomness import request_seed
from jackfield.managers.scheduler.request import Request, cache_namespace

QUEUE_FULL = "queue_full"


class Intake:
    """Numbers the requests: uids count from 1 and are never used twice."""

    def __init__(self, config: SchedulerConfig, *, total_slots: int, page_size: int, grammars: bool = False) -> None:
        """grammars: whether requests may be bound by one."""
        self._config = config
        self._grammars = grammars
        self._total_slots = total_slots
        self._page_size = page_size
        self._uid = 0

    def admit(self, message: TokenizedGenerateRequest, *, queue_full: Callable[[], bool], now: float) -> Request:
        """The request, ready to wait. Raises RequestError with the status for the client."""
        config = self._config
        granted = check_capacity(
            len(message.input_ids),
            message.sampling.max_new_tokens,
            context_length=config.context_length,
            total_slots=self._total_slots,
            page_size=self._page_size,
        )
        least, most = min(message.input_ids), max(message.input_ids)  # before NumPy: an id may not even fit 64 bits
        if least < 0 or most >= config.vocab_size:
            raise RequestError(
                f"Token id {least if least < 0 else most} is outside the vocabulary (0 .. {config.vocab_size - 1}).",
                param="input_ids",
                status_code=400,
            )
        if message.sampling.grammar is not None and not self._grammars:
            raise RequestError(
                f"{message.sampling.grammar.form} is not supported by this server: it runs no grammar backend.",
                param=message.sampling.grammar.form,
                status_code=400,
            )
        if queue_full():
            raise RequestError(
                f"The request queue is full: {config.max_queued_requests} requests wait, and it takes no more "
                "(--max-queued-requests). Try again later.",
                status_code=503,
                code=QUEUE_FULL,
            )
        self._uid += 1
        return Request(
            message,
            uid=self._uid,
            prompt=np.array(message.input_ids, dtype=np.int32),
            max_new_tokens=granted,
            seed=request_seed(config.seed, self._uid, message.sampling.seed),
            namespace=cache_namespace(config.weight_version, 0, message.cache_salt, message.extra_key),
            now=now,
            eos_ids=config.eos_token_ids,
            whole=config.whole_prompts,
        )


def refusal(error: RequestError) -> FinishReason:
    """How a refused request ends."""
    return FinishReason(type="abort", message=error.message, status_code=error.status_code, err_type=error.code)
