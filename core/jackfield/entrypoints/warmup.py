"""The warm-up: one short request through tokenizer, scheduler, worker and detokenizer before the server says ready.

It pays for what a first request costs (lazy kernels, touched memory) and proves the path. No observer, metric or cache
entry remembers it.
"""

from __future__ import annotations

import time

from jackfield.entrypoints.calls import Mover, final_answer
from jackfield.entrypoints.progress import StartProgress
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.tokenizer_manager import TokenizerManager

PROMPT = "Hi"
"""Short: it must fit into any context that is worth serving."""
NEW_TOKENS = 4


class WarmUpFailed(RuntimeError):
    """The warm-up request was not answered; the text says why. The server must not start."""


def warm_up(mover: Mover, *, has_tokenizer: bool) -> float:
    """Run it; returns its seconds. Raises WarmUpFailed. Before the first request only: the cache is flushed."""
    with StartProgress() as progress:
        progress("warming up", 0, 1)
        seconds = _warm_up(mover, has_tokenizer)
        progress("warming up", 1, 1)
    return seconds


def _warm_up(mover: Mover, has_tokenizer: bool) -> float:
    began = time.monotonic()
    try:
        mover.control(TokenizerManager.begin_warm_up)
        call = mover.submit(
            GenerateRequest(
                prompt=PROMPT if has_tokenizer else None,
                input_ids=None if has_tokenizer else [0, 0],
                sampling_params={"max_new_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True},
            )
        )
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
