"""The warm-up: one short request through tokenizer, scheduler, worker and detokenizer before the server says ready.

It pays for what a first request costs (lazy kernels, touched memory) and proves the path. No observer, metric or cache
entry remembers it.
"""

from __future__ import annotations

import time

from jackfield.entrypoints.calls import Mover, final_answer
from jackfield.entrypoints.progress import StartProgress
from jackfield.hookspecs import Pooling
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.pooled_request import AnyRequest, PooledRequest
from jackfield.managers.tokenizer_manager import TokenizerManager

PROMPT = "Hi"
"""Short: it must fit into any context that is worth serving."""
NEW_TOKENS = 4


class WarmUpFailed(RuntimeError):
    """The warm-up request was not answered; the text says why. The server must not start."""


def warm_up(mover: Mover, *, has_tokenizer: bool, pooling: Pooling | None = None) -> float:
    """Run it; returns its seconds. pooling: what the run gives of prompts; None: it generates. Raises WarmUpFailed. Before the
    first request only: the cache is flushed."""
    with StartProgress() as progress:
        progress("warming up", 0, 1)
        seconds = _warm_up(mover, _request(has_tokenizer, pooling))
        progress("warming up", 1, 1)
    return seconds


def _warm_up(mover: Mover, request: AnyRequest) -> float:
    began = time.monotonic()
    try:
        mover.control(TokenizerManager.begin_warm_up)
        call = mover.submit(request)
        try:
            while not call.closed:
                call.wait()
        finally:
            call.end()
        (state,) = call.states
        finish = final_answer(state)["meta_info"]["finish_reason"]
        if finish["type"] == "abort":
            raise WarmUpFailed(f"the warm-up request was aborted: {finish['message']}")
        reply = mover.control(TokenizerManager.end_warm_up)
    except WarmUpFailed:
        raise
    except Exception as error:
        raise WarmUpFailed(f"the warm-up request failed: {error}") from error
    if not reply.ok:
        raise WarmUpFailed(f"the warm-up left something behind: {reply.message}")
    return time.monotonic() - began


def _request(has_tokenizer: bool, pooling: Pooling | None) -> AnyRequest:
    prompt, ids = (PROMPT, None) if has_tokenizer else (None, [0, 0])
    if pooling is not None:
        return PooledRequest(kind=pooling.kind, prompt=prompt, input_ids=ids)
    sampling = {"max_new_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    return GenerateRequest(prompt=prompt, input_ids=ids, sampling_params=sampling)
