"""`/tokenize`, `/detokenize` and the same below `/v1`: the served model's tokenizer and chat template, as every other route
uses them. The ids of a prompt are those that `/v1/completions` computes, the ids of messages those of
`/v1/chat/completions`.

Policies: an empty text has no tokens and is no error; a prompt longer than the context is tokenized, so that a client can
find out how long it is. `tokens` of one list of ids is one text, of a list of lists a list of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jackfield.entrypoints.http.chat_runs import ChatRuns
from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, Reply, check_model, check_prompt_count, json_response
from jackfield.entrypoints.http.openai.chat_request import message_fields
from jackfield.entrypoints.http.schemas.openai_chat import Message
from jackfield.entrypoints.http.schemas.tokenize import DetokenizeBody, TokenizeBody
from jackfield.hookspecs.chat import ChatRequest
from jackfield.managers.errors import shown
from jackfield.managers.text.tokenizer import Tokenizer

R = TypeVar("R")


async def tokenize(exchange: Exchange) -> Reply:
    body: TokenizeBody = exchange.body
    check_model(exchange, body.model)
    tokenizer = _tokenizer(exchange)
    if (body.prompt is None) == (body.messages is None):
        raise _refused("prompt", "give exactly one of prompt and messages")
    if body.messages is None:
        rows = await exchange.service.in_thread(_of_prompt(exchange, body, tokenizer))
    else:
        rows = await _of_messages(exchange, body, body.messages)
    batched = isinstance(body.prompt, list)
    answer: dict[str, Any] = {
        "tokens": _one_or_all(rows, batched),
        "count": _one_or_all([len(row) for row in rows], batched),
        "max_model_len": exchange.service.serving.replica.tokenizer_manager.limits.context_length,
    }
    if body.return_token_strs:
        spelt = [[tokenizer.id_to_token(token) for token in row] for row in rows]
        answer["token_strs"] = _one_or_all(spelt, batched)
    return json_response(answer)


async def detokenize(exchange: Exchange) -> Reply:
    body: DetokenizeBody = exchange.body
    check_model(exchange, body.model)
    tokenizer = _tokenizer(exchange)
    rows, batched = _id_lists(exchange, body.tokens)
    skip = body.skip_special_tokens is not False
    texts = await exchange.service.in_thread(lambda: [tokenizer.decode(row, skip_special_tokens=skip) for row in rows])
    return json_response({"text": _one_or_all(texts, batched)})


def _of_prompt(exchange: Exchange, body: TokenizeBody, tokenizer: Tokenizer) -> Callable[[], list[list[int]]]:
    for name in ("add_generation_prompt", "continue_final_message", "chat_template_kwargs", "tools"):
        if getattr(body, name) is not None:
            raise _refused(name, f"{name} goes with messages, not with a prompt")
    check_prompt_count(exchange, body.prompt, "prompt")
    texts: list[Any] = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    if not texts:
        raise _refused("prompt", "prompt is an empty list")
    for text in texts:
        if not isinstance(text, str):
            raise _refused("prompt", f"prompt must be a text or a list of texts, not {shown(text)}")
    _check_length(exchange, "prompt", sum(map(len, texts)), "characters")
    special = body.add_special_tokens is not False
    return lambda: tokenizer.encode_batch(texts, add_special_tokens=special)


async def _of_messages(exchange: Exchange, body: TokenizeBody, messages: Sequence[Message]) -> list[list[int]]:
    if body.add_special_tokens:
        raise _refused("add_special_tokens", "add_special_tokens: a chat template writes the special tokens itself")
    request = ChatRequest(
        messages=[message_fields(message) for message in messages],
        tools=body.tools or (),
        template_kwargs=body.chat_template_kwargs or {},
        continue_final_message=bool(body.continue_final_message),
    )
    ids = await ChatRuns(exchange).prompt_ids(request, add_generation_prompt=body.add_generation_prompt is not False)
    return [ids]


def _id_lists(exchange: Exchange, given: Any) -> tuple[list[list[int]], bool]:
    """The lists, and whether the answer is a list."""
    if not isinstance(given, list):
        raise _refused("tokens", f"tokens must be a list of token ids, or a list of such lists, not {shown(given)}")
    batched = bool(given) and isinstance(given[0], list)
    if batched:
        check_prompt_count(exchange, given, "tokens")
    rows: list[Any] = given if batched else [given]
    for row in rows:
        if not isinstance(row, list):
            raise _refused("tokens", "tokens mixes ids and lists of ids")
    _check_length(exchange, "tokens", sum(map(len, rows)), "ids")
    vocab_size = exchange.service.serving.replica.tokenizer_manager.limits.vocab_size
    for row in rows:
        for token in row:
            if type(token) is not int or not 0 <= token < vocab_size:
                raise _refused("tokens", f"tokens holds {shown(token)}; ids are integers from 0 to {vocab_size - 1}")
    return rows, batched


def _check_length(exchange: Exchange, name: str, length: int, unit: str) -> None:
    most = exchange.service.args.max_tokenize_length
    if length > most:
        raise _refused(name, f"{name} has {length} {unit}; at most {most} are allowed (--max-tokenize-length)")


def _one_or_all(rows: list[R], batched: bool) -> R | list[R]:
    return rows if batched else rows[0]


def _tokenizer(exchange: Exchange) -> Tokenizer:
    tokenizer = exchange.service.serving.replica.tokenizer_manager.tokenizer
    if tokenizer is None:
        raise ApiError(400, "this run has no tokenizer (--skip-tokenizer-init)", code="not_supported")
    return tokenizer


def _refused(name: str, message: str) -> ApiError:
    return ApiError(400, message, param=name, code="invalid_value")
