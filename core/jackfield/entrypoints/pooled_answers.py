"""Answers of runs that pool, as the engine gives them and HTTP tells them: embeddings, labels, scores of pairs, rankings.

Knows calls and states; not which API asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jackfield.entrypoints.calls import Answer
from jackfield.hookspecs import CLASSIFICATION, EMBEDDING, Pooling
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.tasks import task_of, wrong_task
from jackfield.managers.requests.pooled_request import PooledRequest
from jackfield.managers.requests.pooled_values import Values, cosine, scores, values_of, vector
from jackfield.managers.requests.req_state import ReqState


def pooled_meta(state: ReqState) -> dict[str, Any]:
    """Counts and times, as in the answers of generation."""
    kept = ("id", "finish_reason", "prompt_tokens", "cached_tokens", "e2e_latency", "stage_times")
    meta = state.meta_info()
    return {name: meta[name] for name in (*kept, "stack_epoch", "stack_hash") if name in meta}


def embedding_answer(state: ReqState, pooling: Pooling, dimensions: int | None = None) -> Answer:
    """{embedding, meta_info} of a request that ended well."""
    return {"embedding": vector(state, pooling, dimensions).tolist(), "meta_info": pooled_meta(state)}


def class_answer(state: ReqState, pooling: Pooling) -> Answer:
    """{embedding, probs, label, meta_info}: the logits under SGLang's name, their scores, and the best label's name."""
    logits = values_of(state)
    return {
        "embedding": logits.tolist(),
        "probs": scores(logits, pooling.activation).tolist(),
        "label": pooling.labels[int(logits.argmax())],
        "meta_info": pooled_meta(state),
    }


def check_total(query: int, items: Sequence[Any], most: int, param: str) -> None:
    """The query (its length) is computed again with each item: raises RequestError where that makes more than `most`
    characters, or ids, before anything of that size is made."""
    total = query * len(items) + sum(map(len, items))
    if total > most:
        raise RequestError(
            f"{len(items)} items, each with a query of {query}, are {total} characters or ids; at most {most} are allowed "
            "(--max-request-bytes)",
            param=param,
        )


def request_for_pairs(
    pairs: Sequence[tuple[str, str]], pooling: Pooling | None, *, most: int, **fields: Any
) -> PooledRequest:
    """A call for scores of pairs of texts: one prompt a pair, or for an embedding model each distinct text once.

    most     characters of all pairs together
    fields   further ones of `PooledRequest`

    Raises RequestError for a run that has no such scores.
    """
    if pooling is None:
        raise wrong_task(pooling, CLASSIFICATION)
    if pooling.kind == EMBEDDING:
        return PooledRequest(kind=EMBEDDING, prompt=distinct(pairs), **fields)
    if pooling.width != 1:
        raise RequestError(
            f"the model that is served gives {pooling.width} labels; pairs are scored by one with a single label, or by an "
            "embedding model",
            code="not_supported",
        )
    check_total(max(len(first) for first, _ in pairs), [second for _, second in pairs], most, "prompt")
    return PooledRequest(
        kind=CLASSIFICATION, prompt=[first for first, _ in pairs], second=[second for _, second in pairs], **fields
    )


def distinct(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """All texts of the pairs, each once."""
    return list(dict.fromkeys(text for pair in pairs for text in pair))


def pair_scores(pairs: Sequence[tuple[str, str]], states: Sequence[ReqState], pooling: Pooling) -> list[float]:
    """Of the finished requests of `request_for_pairs`: a cross-encoder's scores, or the cosine of two embeddings."""
    if task_of(pooling) == CLASSIFICATION:
        return [float(scores(values_of(state), pooling.activation)[0]) for state in states]
    found: dict[str, Values] = dict(zip(distinct(pairs), (values_of(state) for state in states), strict=True))
    return [cosine(found[first], found[second]) for first, second in pairs]


def ranking(documents: Sequence[str], relevance: Sequence[float], top_n: int | None) -> list[Answer]:
    """{index, document, relevance_score}, best first; of equals the one that came first."""
    order = sorted(range(len(documents)), key=lambda i: -relevance[i])[:top_n]
    return [{"index": i, "document": documents[i], "relevance_score": relevance[i]} for i in order]
