"""From a call to its prompts: what kind each is, and which of the call's other fields belong to it. Tokenizes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jackfield.managers.errors import RequestError, shown
from jackfield.managers.fields.cache_salt import cache_salts, extra_keys
from jackfield.managers.fields.checks import of_kind_for_each
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.fields.logprobs import LogprobFields, logprob_fields
from jackfield.managers.fields.scheduling import SchedulingFields, scheduling_fields
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.text.tokenizer import check_unicode


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt of a call, with what was sent for it. Exactly one of text and ids is there; the ids are not checked.

    sampling     as sent, unchecked
    label        the client's own id; None: it gave none
    logprobs     None: not asked for
    """

    text: str | None
    ids: Sequence[Any] | None
    sampling: Mapping[str, Any]
    label: str | None
    cache_salt: str | None = field(repr=False)
    extra_key: str | None = field(repr=False)
    scheduling: SchedulingFields
    logprobs: LogprobFields | None


def prompts_of(call: GenerateRequest, *, has_tokenizer: bool, limits: RequestLimits = DEFAULT_LIMITS) -> list[Prompt]:
    """The call's prompts in order, at least one. Raises RequestError naming the field."""
    texts, id_lists = _texts_or_ids(call, has_tokenizer, limits.max_prompts_per_request)
    count = max(len(texts), len(id_lists))
    sampling = of_kind_for_each("sampling_params", call.sampling_params, count, Mapping) or [{}] * count
    labels = of_kind_for_each("rid", call.rid, count, str) or [None] * count
    for label in labels:
        if label is not None:
            # Unchecked it would only fail where the message is made, with the request known as open and never sent.
            check_unicode(label, "rid")
            if not 1 <= len(label) <= limits.max_request_id_length:
                raise RequestError(
                    f"a rid has 1 to {limits.max_request_id_length} characters, not {len(label)} (--max-request-id-length)",
                    param="rid",
                )
    salts = cache_salts(call.cache_salt, count, limits)
    keys = extra_keys(call.extra_key, count, limits)
    scheduling = scheduling_fields(call.priority, call.tenant, call.deadline_s, count, limits)
    logprobs = logprob_fields(
        call.return_logprob,
        call.logprob_start_len,
        call.top_logprobs_num,
        call.token_ids_logprob,
        call.return_text_in_logprobs,
        count,
        limits,
    )
    return [
        Prompt(
            text=texts[i] if texts else None,
            ids=id_lists[i] if id_lists else None,
            sampling=sampling[i],
            label=labels[i],
            cache_salt=salts[i],
            extra_key=keys[i],
            scheduling=scheduling[i],
            logprobs=logprobs[i],
        )
        for i in range(count)
    ]


def checked_ids(ids: Sequence[Any], vocab_size: int, context_length: int) -> list[int]:
    """Raises RequestError for what is no id of the vocabulary, 0 .. vocab_size - 1, and for more of them than the context holds,
    before anybody looks at each."""
    if len(ids) > context_length:
        raise RequestError(
            f"input_ids has {len(ids)} ids, but the model's context length is {context_length}. Shorten the prompt.",
            param="input_ids",
            code="context_length_exceeded",
        )
    for token in ids:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise RequestError(
                f"input_ids holds {shown(token)}; ids are integers from 0 to {vocab_size - 1}", param="input_ids"
            )
    return list(ids)


def _texts_or_ids(call: GenerateRequest, has_tokenizer: bool, most: int) -> tuple[list[str], list[Sequence[Any]]]:
    """One of the two is empty."""
    if (call.prompt is None) == (call.input_ids is None):
        raise RequestError("give exactly one of prompt and input_ids", param="prompt")
    if call.prompt is None:
        return [], _id_lists(call.input_ids, most)
    texts = _texts(call.prompt, most)
    if not has_tokenizer:
        raise RequestError("this run has no tokenizer (--skip-tokenizer-init): send input_ids", param="prompt")
    return texts, []


def _texts(given: Any, most: int) -> list[str]:
    # Neither a mapping nor a set, whose order is not what anybody meant, nor bytes, which are no text.
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray | memoryview):
        raise RequestError(f"prompt must be text or a list of texts, not {type(given).__name__}", param="prompt")
    if isinstance(given, str):
        return [given]
    _check_count("prompt", len(given), most)
    texts = list(given)
    if not texts:
        raise RequestError("prompt is an empty list", param="prompt")
    for text in texts:
        if not isinstance(text, str):
            raise RequestError(f"prompt must be text or a list of texts, not {type(text).__name__}", param="prompt")
    return texts


def _check_count(name: str, count: int, most: int) -> None:
    if count > most:
        raise RequestError(
            f"{name} holds {count} prompts; at most {most} are allowed in one call (--max-prompts-per-request)",
            param=name,
        )


def _id_lists(given: Any, most: int) -> list[Sequence[Any]]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise RequestError("input_ids must be a list of ids, or a list of such lists", param="input_ids")
    if not given:
        raise RequestError("input_ids is empty: a request needs at least one token", param="input_ids")
    if not isinstance(given[0], Sequence):
        return [given]
    _check_count("input_ids", len(given), most)
    lists = list(given)
    for ids in lists:
        if not isinstance(ids, Sequence) or isinstance(ids, str | bytes):
            raise RequestError("input_ids mixes ids and lists of ids", param="input_ids")
    return lists
