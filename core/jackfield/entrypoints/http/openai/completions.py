"""`/v1/completions`: a plain prompt goes on. It is the raw model: the text of a special token in a prompt is that token.

Policies: `best_of` above `n` is not streamed; `suffix` needs a model with fill-in-the-middle tokens, and does not go with
`echo`; usage counts every answer that was made, returned or not, and each prompt once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import (
    GOES_ON,
    Exchange,
    Reply,
    check_ids_count,
    check_model,
    check_prompt_count,
    ending,
    json_response,
    usage,
)
from jackfield.entrypoints.http.openai.best_of import Candidates, candidates
from jackfield.entrypoints.http.openai.common import (
    Head,
    Piece,
    check_stream_options,
    continuous_usage,
    pieces,
    sampling_params,
)
from jackfield.entrypoints.http.openai.fill_in import FillIn
from jackfield.entrypoints.http.openai.logprobs import CompletionLogprobs, completion_fields
from jackfield.entrypoints.http.schemas.openai import CompletionBody
from jackfield.entrypoints.http.sse import DONE, EventStream, event
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.text.tokenizer import Tokenizer

KIND = "text_completion"
DEFAULT_MAX_TOKENS = 16
"""OpenAI's."""


async def completions(exchange: Exchange) -> Reply:
    body: CompletionBody = exchange.body
    exchange.names.update(input_ids="prompt", max_new_tokens="max_tokens", min_new_tokens="min_tokens")
    check_model(exchange, body.model)
    with_usage = check_stream_options(body)
    head = Head.new(exchange, "cmpl")
    wanted = candidates(exchange, body)
    request = _request(exchange, body, head, wanted)
    service = exchange.service
    tokenizer = service.serving.replica.tokenizer_manager.tokenizer
    fill_in = FillIn.of(body, tokenizer) if body.suffix else None
    call = await exchange.submit(lambda: request if fill_in is None else fill_in.around(request))
    states = call.states
    echo = _echo(request, len(states), tokenizer) if body.echo else None
    # Log-probabilities that only `best_of` asked for are not told.
    asked = body.logprobs is not None and body.logprobs is not False  # 0 asks for the tokens' own values
    tell = CompletionLogprobs(tokenizer, echo) if asked else _nothing
    if body.stream:
        updates = service.news(call, lambda states: pieces(states, tell))
        return EventStream(_events(head, with_usage, continuous_usage(body), echo, await anext(updates), updates))
    choices = await service.answers(
        call,
        lambda state: _choice(
            state.index,
            ("" if echo is None else echo(state.index)) + state.text,
            tell(state),
            ending(state.finish),
        ),
    )
    if wanted.chosen_among:
        choices = wanted.best(states, choices)
    return json_response(head.object(KIND, choices, usage(states)))


def _nothing(state: ReqState) -> None:
    """A `Tell` for whoever asked for nothing."""


def _request(exchange: Exchange, body: CompletionBody, head: Head, wanted: Candidates) -> GenerateRequest:
    prompt = body.prompt
    check_prompt_count(exchange, prompt, "prompt")
    if not isinstance(prompt, str | list):
        raise ApiError(
            400,
            f"prompt must be a text, token ids, or a list of either, not {type(prompt).__name__}",
            param="prompt",
            code="invalid_value",
        )
    if not prompt and not (prompt == "" and body.suffix):
        raise ApiError(400, "prompt is empty: a request needs at least one token", param="prompt", code="invalid_value")
    text = isinstance(prompt, str) or isinstance(prompt[0], str)
    if not text:
        check_ids_count(exchange, prompt, "prompt")
    sampling = {**sampling_params(body, ()), "n": wanted.made, "best_of": None}
    if body.max_tokens == 0 and not body.echo:
        raise ApiError(400, "max_tokens 0 needs echo: true", param="max_tokens", code="invalid_value")
    if body.echo and exchange.service.serving.replica.tokenizer_manager.tokenizer is None:
        raise ApiError(400, "echo needs a tokenizer, and this run has none", param="echo", code="not_supported")
    sampling["max_new_tokens"] = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    logprobs = completion_fields(exchange, body)
    if wanted.chosen_among:
        exchange.names.update({"n": "best_of"} | ({} if logprobs else {"return_logprob": "best_of"}))
        logprobs = {"return_logprob": True, **logprobs}
    several = isinstance(prompt, list) and isinstance(prompt[0], str | list)
    labels = head.labels(len(prompt) if several else 1)
    return GenerateRequest(
        prompt=prompt if text else None,
        input_ids=None if text else list(prompt),
        sampling_params=sampling,
        stream=bool(body.stream),
        rid=labels if several else labels[0],
        call_id=exchange.label,
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
        **logprobs,
    )


def _echo(request: GenerateRequest, answers: int, tokenizer: Tokenizer | None) -> Callable[[int], str]:
    """The prompt's text by the number of the answer: as it was sent, or what its ids say, special tokens included."""
    assert tokenizer is not None
    if request.prompt is not None:
        texts = [request.prompt] if isinstance(request.prompt, str) else list(request.prompt)
    else:
        given: Any = request.input_ids
        lists = given if isinstance(given[0], list) else [given]
        texts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in lists]
    each = answers // len(texts)
    return lambda index: texts[index // each]


def _choice(index: int, text: str, logprobs: dict[str, Any] | None, end: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, **(end or GOES_ON)}


def _so_far(piece: Piece) -> dict[str, int]:
    """The usage of one choice up to this chunk."""
    prompt, completion = piece.so_far
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def _events(
    head: Head,
    with_usage: bool,
    continuous: bool,
    echo: Callable[[int], str] | None,
    first: list[Piece],
    updates: AsyncGenerator[list[Piece], None],
) -> AsyncGenerator[bytes, None]:
    try:
        tokens = None
        echoed: set[int] = set()
        batch: list[Piece] | None = first
        while batch is not None:
            events = []
            for piece in batch:
                text = piece.text
                if echo is not None and piece.index not in echoed:
                    echoed.add(piece.index)
                    text = echo(piece.index) + text
                choice = _choice(piece.index, text, piece.logprobs, piece.ending)
                events.append(event(head.object(KIND, [choice], _so_far(piece) if continuous else None)))
            yield b"".join(events)
            tokens = batch[-1].usage or tokens
            batch = await anext(updates, None)
        if with_usage:
            yield event(head.object(KIND, [], tokens))
        yield DONE
    finally:
        await updates.aclose()
