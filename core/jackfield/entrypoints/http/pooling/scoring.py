"""`/v1/classify`, `/v1/score` and `/v1/rerank`: labels of texts, scores of pairs, documents by how well they answer a query."""

from __future__ import annotations

from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, Reply
from jackfield.entrypoints.http.pooling.pooled import (
    answered,
    finished,
    head,
    input_fields,
    pooled_usage,
    pooling_of,
    scheduled,
)
from jackfield.entrypoints.http.schemas.pooling import ClassifyBody, RerankBody, ScoreBody
from jackfield.entrypoints.label_scores import label_request, label_scores
from jackfield.entrypoints.pooled_answers import class_answer, pair_scores, ranking, request_for_pairs
from jackfield.hookspecs import CLASSIFICATION
from jackfield.managers.requests.pooled_request import PooledRequest

Pairs = list[tuple[str, str]]


async def classify(exchange: Exchange) -> Reply:
    body: ClassifyBody = exchange.body
    fields = scheduled(exchange, body)
    given = input_fields(exchange, body.input, "input", cut=body.truncate_prompt_tokens is not None)
    request = PooledRequest(kind=CLASSIFICATION, truncate=body.truncate_prompt_tokens, **given, **fields)
    states, pooling = await finished(exchange, lambda: request), pooling_of(exchange)
    assert pooling is not None

    def data() -> list[dict[str, Any]]:
        told = [class_answer(state, pooling) for state in states]
        return [
            {"index": i, "label": one["label"], "probs": one["probs"], "num_classes": pooling.width}
            for i, one in enumerate(told)
        ]

    return await answered(
        exchange,
        lambda: {**head(exchange, "classify"), "object": "list", "data": data(), "usage": pooled_usage(states)},
    )


async def score(exchange: Exchange) -> Reply:
    body: ScoreBody = exchange.body
    if pooling_of(exchange) is None:
        return await _label_scores(exchange, body)
    fields = scheduled(exchange, body)
    for name in ("query", "items", "label_token_ids"):
        if getattr(body, name) is not None:
            raise _refused(name, f"{name} goes with a model that generates; this one takes text_1 and text_2")
    pairs = _pairs(body.text_1, body.text_2)
    scores, usage = await _scored(exchange, body, pairs, fields)
    data = [{"object": "score", "index": i, "score": value} for i, value in enumerate(scores)]
    return await answered(exchange, lambda: {**head(exchange, "score"), "object": "list", "data": data, "usage": usage})


async def rerank(exchange: Exchange) -> Reply:
    body: RerankBody = exchange.body
    fields = scheduled(exchange, body)
    documents = [_document(one, i) for i, one in enumerate(body.documents)]
    if not body.query:
        raise _refused("query", "query is empty")
    scores, usage = await _scored(exchange, body, [(body.query, document) for document in documents], fields)
    results = []
    for one in ranking(documents, scores, body.top_n or None):
        text = {"document": {"text": one.pop("document")}}
        results.append(one if body.return_documents is False else {**one, **text})
    told = head(exchange, "rerank")
    del told["created"]
    return await answered(exchange, lambda: {**told, "results": results, "usage": usage})


async def _scored(
    exchange: Exchange, body: ScoreBody | RerankBody, pairs: Pairs, fields: dict[str, Any]
) -> tuple[list[float], dict[str, int]]:
    name = "documents" if isinstance(body, RerankBody) else "text_2"
    most = exchange.service.args.max_prompts_per_request
    if len(pairs) > most:
        raise _refused(name, f"{name} makes {len(pairs)} pairs; at most {most} are allowed (--max-prompts-per-request)")
    pooling = pooling_of(exchange)
    assert pooling is not None
    exchange.names.update(prompt=name, input_ids=name)
    request = request_for_pairs(
        pairs, pooling, most=exchange.service.args.max_request_bytes, truncate=body.truncate_prompt_tokens, **fields
    )
    states = await finished(exchange, lambda: request)
    scores = await exchange.service.in_thread(lambda: pair_scores(pairs, states, pooling))
    return scores, pooled_usage(states)


async def _label_scores(exchange: Exchange, body: ScoreBody) -> Reply:
    fields = scheduled(exchange, body)
    for name in ("text_1", "text_2", "truncate_prompt_tokens"):
        if getattr(body, name) is not None:
            raise _refused(
                name,
                f"{name} goes with a cross-encoder or an embedding model; this one generates and takes query, items and "
                "label_token_ids",
            )
    exchange.names.update(prompt="items", input_ids="items", token_ids_logprob="label_token_ids")
    listed = body.items if isinstance(body.items, list) else [body.items]
    if len(listed) > (most := exchange.service.args.max_prompts_per_request):
        raise _refused("items", f"items holds {len(listed)}; at most {most} are allowed (--max-prompts-per-request)")
    request = label_request(
        body.query,
        body.items,
        body.label_token_ids,
        most=exchange.service.args.max_request_bytes,
        item_first=bool(body.item_first),
        **fields,
    )
    states = await finished(exchange, lambda: request)
    softmax = bool(body.apply_softmax)
    return await answered(
        exchange,
        lambda: {
            "object": "scoring",
            "model": exchange.service.serving.replica.model_name,
            "scores": [label_scores(state, apply_softmax=softmax) for state in states],
            "usage": pooled_usage(states),
        },
    )


def _pairs(first: Any, second: Any) -> Pairs:
    """One first text goes with every second one; several go with as many."""
    given = {"text_1": first, "text_2": second}
    lists: list[list[str]] = []
    for name, value in given.items():
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise _refused(name, f"{name} must be a text or a list of texts, none of them empty")
        lists.append(texts)
    ones, others = lists
    if len(ones) == 1:
        ones = ones * len(others)
    if len(ones) != len(others):
        raise _refused("text_1", f"text_1 has {len(ones)} texts for {len(others)} of text_2: give one, or one for each")
    return list(zip(ones, others, strict=True))


def _document(given: Any, i: int) -> str:
    text = given.get("text") if isinstance(given, dict) else given
    if not isinstance(text, str) or not text:
        raise _refused(f"documents[{i}]", f'documents[{i}] must be a text or {{"text": ...}}, and not empty')
    return text


def _refused(param: str, message: str) -> ApiError:
    return ApiError(400, message, param=param, code="invalid_value")
