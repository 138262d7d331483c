"""Scores of items by a model that generates: how likely it goes on with each of some label tokens after query and item.

SGLang's `score`: the probabilities of the labels' tokens at the next position, or their softmax among each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jackfield.entrypoints.pooled_answers import check_total
from jackfield.managers.errors import RequestError
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.requests.req_state import ReqState


def label_request(
    query: Any, items: Any, label_token_ids: Any, *, most: int, item_first: bool = False, **fields: Any
) -> GenerateRequest:
    """One prompt an item; query and items are both texts, or both token ids. fields: further ones of `GenerateRequest`.

    most   characters, or ids, of all prompts together

    Raises RequestError naming the field.
    """
    if not isinstance(items, Sequence) or not items:
        raise RequestError("items must be a text, a list of texts or a list of id lists, and not empty", param="items")
    listed: list[Any] = [items] if isinstance(items, str) else list(items)
    if not isinstance(label_token_ids, Sequence) or isinstance(label_token_ids, str) or not label_token_ids:
        raise RequestError("label_token_ids must be a list of token ids, at least one", param="label_token_ids")
    if len(set(map(repr, label_token_ids))) < len(label_token_ids):
        raise RequestError("label_token_ids names an id twice", param="label_token_ids")
    text = isinstance(query, str)
    kind = str if text else list
    if not isinstance(query, str | list) or not all(isinstance(item, kind) for item in listed):
        raise RequestError("query and items must be all texts, or all lists of token ids", param="items")
    check_total(len(query), listed, most, "items")
    prompts = [item + query if item_first else query + item for item in listed]
    return GenerateRequest(
        prompt=prompts if text else None,
        input_ids=None if text else prompts,
        sampling_params={"max_new_tokens": 1, "temperature": 0},
        return_logprob=True,
        token_ids_logprob=list(label_token_ids),
        **fields,
    )


def label_scores(state: ReqState, *, apply_softmax: bool) -> list[float]:
    """One a label, in the order in which they were asked, of a request that ended well."""
    assert state.logprobs is not None
    entry = state.logprobs.outputs()[0]
    values = [value for value, _ in entry.ids or ()]
    if not apply_softmax:
        return [math.exp(value) for value in values]
    shifted = np.exp(np.array(values, dtype=np.float64) - max(values))
    return [float(value) for value in shifted / shifted.sum()]
