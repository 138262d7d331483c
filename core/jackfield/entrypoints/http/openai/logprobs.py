"""Log-probabilities on the OpenAI routes: what may be asked for, and the two shapes in which they are told.

Rules: there is one entry for each token that usage counts, stop and end tokens included, whatever a stop cut off the text.
A token is named by what it stands for alone. In the legacy shape one that is a part of a character is "bytes:\\xe2\\x80", and
of several ids with one text all but the likeliest are "token_id:N", so that no name stands for two tokens; `text_offset` counts
in the text before stops are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.entrypoints.http.schemas.openai import CompletionBody
from jackfield.entrypoints.http.schemas.openai_chat import ChatBody
from jackfield.managers.logprobs.entries import Entry
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.text.incremental_decoder import IncrementalDecoder
from jackfield.managers.text.tokenizer import Tokenizer

MAX_CHAT_TOP = 20
MAX_COMPLETION_TOP = 5

Tell = Callable[[ReqState], dict[str, Any] | None]
"""What came of an answer's log-probabilities since the last time, in the route's shape; None: nobody asked."""


def chat_logprobs(exchange: Exchange, body: ChatBody) -> int | None:
    """How many of the likeliest tokens go with each; None: no log-probabilities. Raises ApiError naming the field."""
    if body.logprobs is not None and not isinstance(body.logprobs, bool):
        raise _refused("logprobs", "true or false")
    return top_logprobs(exchange, body.top_logprobs, wanted=bool(body.logprobs), needs="logprobs: true")


def top_logprobs(exchange: Exchange, top: Any, *, wanted: bool, needs: str) -> int | None:
    """The same for a request that asks with other words. needs: what has to be said before `top_logprobs` may be."""
    if top is not None and not _whole(top, MAX_CHAT_TOP):
        raise _refused("top_logprobs", f"a whole number from 0 to {MAX_CHAT_TOP}")
    if not wanted:
        if top:
            raise ApiError(400, f"top_logprobs needs {needs}", param="top_logprobs", code="invalid_value")
        return None
    _need_tokenizer(exchange)
    return top or 0


def completion_fields(exchange: Exchange, body: CompletionBody) -> dict[str, Any]:
    """The same for completions. With `echo` the prompt's tokens have entries too, the first one none."""
    wanted = body.logprobs
    if wanted is None or wanted is False:  # false is what clients of the chat route send for nothing
        return {}
    if not _whole(wanted, MAX_COMPLETION_TOP):
        raise _refused("logprobs", f"a whole number from 0 to {MAX_COMPLETION_TOP}")
    _need_tokenizer(exchange)
    exchange.names.update(return_logprob="logprobs", top_logprobs_num="logprobs", logprob_start_len="echo")
    return {"return_logprob": True, "top_logprobs_num": wanted, "logprob_start_len": 0 if body.echo else -1}


def _need_tokenizer(exchange: Exchange) -> None:
    if exchange.service.serving.replica.tokenizer_manager.tokenizer is None:
        raise ApiError(
            400, "logprobs name tokens by text, and this run has no tokenizer", param="logprobs", code="not_supported"
        )


def _whole(value: Any, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high


def _refused(name: str, want: str) -> ApiError:
    return ApiError(400, f"{name} must be {want}", param=name, code="invalid_value")


@dataclass
class _Offset:
    """Where in its text an answer's next token begins."""

    decoder: IncrementalDecoder
    value: int = 0


class CompletionLogprobs:
    """A `Tell` for completions: {tokens, token_logprobs, top_logprobs, text_offset}.

    echo   what each prompt's part of the text is, or None without `echo`; by the number of the answer
    """

    def __init__(self, tokenizer: Tokenizer | None, echo: Callable[[int], str] | None) -> None:
        self._tokenizer = tokenizer
        self._echo = echo
        self._offsets: dict[int, _Offset] = {}

    def __call__(self, state: ReqState) -> dict[str, Any] | None:
        log = state.logprobs
        if log is None:
            return None
        begin = state.new_entries()
        told: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        offset = self._offsets.get(state.index)
        if offset is None:
            offset = self._offsets[state.index] = self._begin(state, log.context)
            if self._echo is not None:
                self._prompt(log.inputs(), self._echo(state.index), told)
                offset.value = len(self._echo(state.index))
        for entry in log.outputs(begin):
            self._add(entry, offset.value, told)
            offset.value += len(offset.decoder.push(entry.token))
        return {**told, "top_logprobs": told["top_logprobs"] if log.wanted.top else None}

    def _begin(self, state: ReqState, context: Sequence[int]) -> _Offset:
        assert self._tokenizer is not None
        skip = state.sampling.skip_special_tokens
        return _Offset(self._tokenizer.incremental_decoder(skip_special_tokens=skip, context=context))

    def _prompt(self, entries: Sequence[Entry], text: str, told: dict[str, list[Any]]) -> None:
        assert self._tokenizer is not None
        decoder = self._tokenizer.incremental_decoder(skip_special_tokens=False)
        at = 0
        for i, entry in enumerate(entries):
            self._add(entry, min(at, len(text)), told)
            piece = decoder.push(entry.token)
            # A token that the tokenizer put before a text is no part of it.
            at += 0 if i == 0 and not text.startswith(piece) else len(piece)

    def _add(self, entry: Entry, offset: int, told: dict[str, list[Any]]) -> None:
        told["tokens"].append(self._name(entry.token))
        told["token_logprobs"].append(entry.value)
        told["text_offset"].append(offset)
        if entry.value is None or entry.top is None:
            told["top_logprobs"].append(None)  # the first token of a prompt
            return
        named: dict[str, float] = {}
        itself = [] if any(token == entry.token for _, token in entry.top) else [(entry.value, entry.token)]
        for value, token in [*entry.top, *itself]:
            name = self._name(token)
            named[f"token_id:{token}" if name in named else name] = value
        told["top_logprobs"].append(named)

    def _name(self, token: int) -> str:
        assert self._tokenizer is not None
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
