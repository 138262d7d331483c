"""Whether a request can ever run here, and with how many output tokens. One pure function, asked at the edge (a clean 400
before anything is queued) and again by the scheduler, so that the two cannot disagree. Knows numbers only.

Policy: a `max_new_tokens` that does not fit is lowered to what fits; a prompt that does not fit is refused.
"""

from __future__ import annotations

from jackfield.managers.errors import RequestError
from jackfield.mem_cache.accounting import round_down


class CapacityError(RequestError):
    """The request could never run with this context length and this KV pool."""


def kv_tokens(prompt_tokens: int, max_new_tokens: int) -> int:
    """Tokens whose KV a request writes at most: the last output token is sampled, but never computed."""
    return prompt_tokens + max(0, max_new_tokens - 1)


def check_capacity(
    prompt_tokens: int, max_new_tokens: int, *, context_length: int, total_slots: int, page_size: int
) -> int:
    """The output tokens that the request is granted: `max_new_tokens`, or fewer where context or pool end before.

    A prompt of exactly `context_length` tokens is granted one output token. `total_slots` counts the slots of the pool
    without the dummy page. Raises CapacityError (400) for an empty prompt, and for one that fits neither the context nor
    the whole pool.
    """
    if prompt_tokens <= 0:
        raise CapacityError("The prompt is empty: at least one token is needed.", param="input_ids", status_code=400)
    if max_new_tokens < 0:
        raise CapacityError(
            f"max_new_tokens is {max_new_tokens}; it must be 0 or more.", param="max_new_tokens", status_code=400
        )
    pool = round_down(total_slots, page_size)
    if prompt_tokens > context_length:
        raise CapacityError(
            f"The prompt has {prompt_tokens} tokens, but the model's context length is {context_length}. "
            "Shorten the prompt.",
            param="input_ids",
            status_code=400,
            code="context_length_exceeded",
        )
    if prompt_tokens > pool:
        raise CapacityError(
            f"The prompt has {prompt_tokens} tokens, but this server's whole KV cache holds {pool}. Shorten the prompt, "
            "or start the server with a larger --max-total-tokens.",
            param="input_ids",
            status_code=400,
            code="context_length_exceeded",
        )
    return min(max_new_tokens, min(context_length, pool) - prompt_tokens + 1)
