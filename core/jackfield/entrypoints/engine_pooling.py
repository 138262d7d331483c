"""Vectors, labels, scores and rankings of `Engine`, by whatever its model gives. Knows movers and calls, no protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.calls import Answer, Mover, raise_unless_complete, wait
from jackfield.entrypoints.label_scores import label_request, label_scores
from jackfield.entrypoints.pooled_answers import class_answer, embedding_answer, pair_scores, ranking, request_for_pairs
from jackfield.hookspecs import CLASSIFICATION, Pooling
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.tasks import wrong_task
from jackfield.managers.requests.pooled_request import AnyRequest, PooledRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.tokenizer_manager import TokenizerManager


class PoolingReplica(Protocol):
    """What these calls need of a replica of any topology."""

    args: ServerArgs

    @property
    def tokenizer_manager(self) -> TokenizerManager: ...


def encode(replica: PoolingReplica, mover: Mover, request: PooledRequest) -> list[Answer]:
    states = _finished(mover, request)
    return [embedding_answer(state, _pooling(replica), request.dimensions) for state in states]


def classify(replica: PoolingReplica, mover: Mover, request: PooledRequest) -> list[Answer]:
    states = _finished(mover, request)
    return [class_answer(state, _pooling(replica)) for state in states]


def score(
    replica: PoolingReplica,
    mover: Mover,
    query: str | Sequence[int],
    items: str | Sequence[str] | Sequence[Sequence[int]],
    label_token_ids: Sequence[int] | None,
    *,
    apply_softmax: bool,
    item_first: bool,
    truncate: int | None,
    **fields: Any,
) -> list[Any]:
    """A number for each item of a model that pools; of one that generates a list of probabilities. Raises RequestError."""
    pooling, most = replica.tokenizer_manager.limits.pooling, replica.args.max_request_bytes
    if pooling is None:
        request = label_request(query, items, label_token_ids, most=most, item_first=item_first, **fields)
        return [label_scores(state, apply_softmax=apply_softmax) for state in _finished(mover, request)]
    if label_token_ids is not None:
        raise RequestError("label_token_ids goes with a model that generates", param="label_token_ids")
    texts = [items] if isinstance(items, str) else list(items)
    pairs: Any = [(query, item) for item in texts]
    states = _finished(mover, request_for_pairs(pairs, pooling, most=most, truncate=truncate, **fields))
    return pair_scores(pairs, states, pooling)


def rerank(
    replica: PoolingReplica,
    mover: Mover,
    query: str,
    documents: Sequence[str],
    top_n: int | None,
    *,
    truncate: int | None,
    **fields: Any,
) -> list[dict[str, Any]]:
    """Raises RequestError, of a model that generates too."""
    if replica.tokenizer_manager.limits.pooling is None:
        raise wrong_task(None, CLASSIFICATION)
    found = score(
        replica, mover, query, documents, None, apply_softmax=False, item_first=False, truncate=truncate, **fields
    )
    return ranking(documents, found, top_n)


def _pooling(replica: PoolingReplica) -> Pooling:
    pooling = replica.tokenizer_manager.limits.pooling
    assert pooling is not None, "the request would have been refused"
    return pooling


def _finished(mover: Mover, request: AnyRequest) -> list[ReqState]:
    """The states of a call, complete and without an error; an interrupted caller leaves no request behind."""
    call = mover.submit(request)
    wait(call)
    for state in call.states:
        raise_unless_complete(state)
    return call.states
