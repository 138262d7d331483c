"""What a client may ask of log-probabilities: from the values that were sent to checked ones, or one clear refusal.

POLICY: the values are the log-softmax of the model's raw logits in float32, before penalties, bias, temperature, top-k, top-p
and min-p. A field that has no effect without `return_logprob` is refused without it, unless it asks for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.ipc.messages import LogprobParams
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import for_each, refused, whole
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits


@dataclass(frozen=True, kw_only=True)
class LogprobFields:
    """As sent for one prompt, in range by themselves. start: -1, or a position of the prompt."""

    start: int
    top: int
    ids: tuple[int, ...]
    texts: bool

    def params(
        self, *, prompt_tokens: int, new_tokens: int, vocab_size: int, limits: RequestLimits = DEFAULT_LIMITS
    ) -> LogprobParams:
        """For a prompt of so many tokens, which may be answered with so many. Raises RequestError naming the field."""
        start = prompt_tokens if self.start == -1 else self.start
        if start > prompt_tokens:
            raise RequestError(
                f"logprob_start_len is {start}, but the prompt has {prompt_tokens} tokens", param="logprob_start_len"
            )
        if self.top > vocab_size:
            raise RequestError(
                f"top_logprobs_num is {self.top}, but the vocabulary has {vocab_size} tokens", param="top_logprobs_num"
            )
        for token in self.ids:
            if token >= vocab_size:
                raise refused("token_ids_logprob", f"ids from 0 to {vocab_size - 1}", token)
        values = (prompt_tokens - start + new_tokens) * (1 + self.top + len(self.ids))
        if values > limits.max_logprob_values:
            raise RequestError(
                f"{prompt_tokens - start} tokens of the prompt and {new_tokens} new ones with {1 + self.top + len(self.ids)} "
                f"log-probabilities each are {values}; at most {limits.max_logprob_values} are allowed for one prompt "
                "(--max-logprob-values)",
                param="top_logprobs_num",
            )
        return LogprobParams(start=start, top=self.top, ids=self.ids, texts=self.texts)


def prompt_values(wanted: LogprobParams, prompt_tokens: int) -> int:
    """How many values the entries of a prompt of so many tokens hold."""
    return (prompt_tokens - wanted.start) * (1 + wanted.top + len(wanted.ids))


def check_prompt_values(values: int, *, stream: bool, limits: RequestLimits = DEFAULT_LIMITS) -> None:
    """Of a whole call. Raises RequestError."""
    most = limits.max_streamed_prompt_logprob_values if stream else limits.max_prompt_logprob_values
    if values > most:
        raise RequestError(
            f"the prompts of all answers of this call would have {values} log-probabilities; at most {most} are allowed"
            f"{' in a stream (--max-streamed-prompt-logprob-values)' if stream else ' (--max-prompt-logprob-values)'}",
            param="logprob_start_len",
        )


def logprob_fields(
    return_logprob: Any,
    logprob_start_len: Any,
    top_logprobs_num: Any,
    token_ids_logprob: Any,
    texts: Any,
    count: int,
    limits: RequestLimits = DEFAULT_LIMITS,
) -> list[LogprobFields | None]:
    """The fields of each of `count` prompts; None: no log-probabilities. Each argument is one value for all of them, or a
    list with one for each; None, alone or in a list, is absent. Raises RequestError naming the field."""
    if texts is not None and not isinstance(texts, bool):
        raise refused("return_text_in_logprobs", "true or false", texts)
    found: list[LogprobFields | None] = []
    for wanted, start, top, ids in zip(
        for_each("return_logprob", return_logprob, count),
        for_each("logprob_start_len", logprob_start_len, count),
        for_each("top_logprobs_num", top_logprobs_num, count),
        _ids_for_each(token_ids_logprob, count),
        strict=True,
    ):
        if wanted is not None and not isinstance(wanted, bool):
            raise refused("return_logprob", "true or false", wanted)
        fields = LogprobFields(
            start=-1 if start is None else whole("logprob_start_len", start, -1, 2**31 - 1),
            top=0 if top is None else whole("top_logprobs_num", top, 0, limits.max_top_logprobs, "--max-top-logprobs"),
            ids=_ids(ids, limits.max_token_ids_logprob),
            texts=bool(texts),
        )
        if not wanted:
            for name, asks in (
                ("logprob_start_len", fields.start != -1),
                ("top_logprobs_num", fields.top != 0),
                ("token_ids_logprob", bool(fields.ids)),
            ):
                if asks:
                    raise RequestError(f"{name} needs return_logprob: true", param=name)
        found.append(fields if wanted else None)
    return found


def _ids_for_each(given: Any, count: int) -> Sequence[Any]:
    """A list of ids is meant for all prompts; a list of lists has one for each."""
    if isinstance(given, list | tuple) and any(isinstance(entry, list | tuple) for entry in given):
        return for_each("token_ids_logprob", given, count)
    return [given] * count


def _ids(given: Any, most: int) -> tuple[int, ...]:
    if given is None:
        return ()
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise refused("token_ids_logprob", "a list of token ids, or one a prompt", given)
    if len(given) > most:
        raise RequestError(
            f"token_ids_logprob holds {len(given)} ids; at most {most} are allowed (--max-token-ids-logprob)",
            param="token_ids_logprob",
        )
    return tuple(whole("token_ids_logprob", token, 0, 2**31 - 1) for token in given)
