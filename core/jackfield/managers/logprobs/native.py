"""Log-probabilities in the shape of SGLang's `meta_info`: each is [logprob, id, text], text null unless it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jackfield.managers.logprobs.entries import Entry, LogprobLog

TokenText = Callable[[int], str]


def native_logprobs(log: LogprobLog, text: TokenText | None, begin: int = 0) -> dict[str, Any]:
    """The fields of `meta_info`. text: a token alone as text; None: no texts. begin: the first output token told; the
    prompt's are told with output token 0."""
    meta: dict[str, Any] = {}
    if begin == 0:
        meta |= _fields("input", log.inputs(), log, text)
    meta |= _fields("output", log.outputs(begin), log, text)
    meta["output_token_logprobs_length"] = len(log)
    return meta


def _fields(side: str, entries: Sequence[Entry], log: LogprobLog, text: TokenText | None) -> dict[str, Any]:
    def row(value: float | None, token: int) -> list[Any]:
        return [value, token, None if text is None else text(token)]

    def rows(pairs: Sequence[tuple[float, int]] | None) -> list[Any] | None:
        return None if pairs is None else [row(value, token) for value, token in pairs]

    fields: dict[str, Any] = {f"{side}_token_logprobs": [row(entry.value, entry.token) for entry in entries]}
    if log.wanted.top:
        fields[f"{side}_top_logprobs"] = [rows(entry.top) for entry in entries]
    if log.wanted.ids:
        fields[f"{side}_token_ids_logprobs"] = [rows(entry.ids) for entry in entries]
    return fields
