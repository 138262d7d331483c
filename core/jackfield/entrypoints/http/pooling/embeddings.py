"""`/v1/embeddings` and `/encode`: a vector for each text. An empty text is refused, as OpenAI does."""

from __future__ import annotations

import base64
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, Reply
from jackfield.entrypoints.http.pooling.pooled import (
    answered,
    finished,
    input_fields,
    pooled_usage,
    pooling_of,
    scheduled,
)
from jackfield.entrypoints.http.schemas.pooling import EmbeddingsBody, EncodeBody, LabelsBody
from jackfield.entrypoints.pooled_answers import class_answer, embedding_answer
from jackfield.hookspecs import CLASSIFICATION, EMBEDDING, Pooling
from jackfield.managers.fields.not_yet import refuse_not_yet
from jackfield.managers.requests.pooled_request import PooledRequest
from jackfield.managers.requests.pooled_values import vector
from jackfield.managers.requests.req_state import ReqState


async def embeddings(exchange: Exchange) -> Reply:
    body: EmbeddingsBody = exchange.body
    fields = scheduled(exchange, body)
    given = input_fields(exchange, body.input, "input", cut=body.truncate_prompt_tokens is not None)
    request = PooledRequest(
        kind=EMBEDDING, dimensions=body.dimensions, truncate=body.truncate_prompt_tokens, **given, **fields
    )
    states = await finished(exchange, lambda: request)
    pooling = pooling_of(exchange)
    assert pooling is not None
    name = exchange.service.serving.replica.model_name
    return await answered(
        exchange,
        lambda: {
            "object": "list",
            "data": [_embedding(state, pooling, body) for state in states],
            "model": name,
            "usage": pooled_usage(states),
        },
    )


def _embedding(state: ReqState, pooling: Pooling, body: EmbeddingsBody) -> dict[str, Any]:
    values = vector(state, pooling, body.dimensions)
    told: Any = values.tolist()
    if body.encoding_format == "base64":
        told = base64.b64encode(values.astype("<f4", copy=False).tobytes()).decode("ascii")
    return {"object": "embedding", "index": state.index, "embedding": told}


async def encode(exchange: Exchange) -> Reply:
    body: EncodeBody = exchange.body
    request = _native(exchange, body, EMBEDDING, body.dimensions)
    states, pooling = await finished(exchange, lambda: request), pooling_of(exchange)
    assert pooling is not None
    return await answered(
        exchange, lambda: _native_shape(request, [embedding_answer(one, pooling, body.dimensions) for one in states])
    )


async def classify(exchange: Exchange) -> Reply:
    body: LabelsBody = exchange.body
    request = _native(exchange, body, CLASSIFICATION, None)
    states, pooling = await finished(exchange, lambda: request), pooling_of(exchange)
    assert pooling is not None
    return await answered(exchange, lambda: _native_shape(request, [class_answer(one, pooling) for one in states]))


def _native_shape(request: PooledRequest, answers: list[Any]) -> Any:
    return answers if request.is_batch else answers[0]


def _native(exchange: Exchange, body: EncodeBody, kind: str, dimensions: Any) -> PooledRequest:
    not_yet = ("image_data", "video_data", "audio_data", "lora_path")
    refuse_not_yet({name: value for name in not_yet if (value := getattr(body, name)) is not None})
    for name in (*not_yet, *(["dimensions"] if kind == CLASSIFICATION else [])):
        if getattr(body, name):
            raise ApiError(400, f"{name} is not supported here", param=name, code="not_supported")
    if (body.text is None) == (body.input_ids is None):
        raise ApiError(400, "give exactly one of text and input_ids", param="text", code="invalid_value")
    cut = body.truncate_prompt_tokens is not None
    if body.text is not None:
        given = input_fields(exchange, body.text, "text")
        if "prompt" not in given:
            raise ApiError(400, "text must be a text or a list of texts", param="text", code="invalid_value")
    else:
        given = input_fields(exchange, body.input_ids, "input_ids", cut=cut)
        if "prompt" in given:
            raise ApiError(400, "input_ids must be token ids, not text", param="input_ids", code="invalid_value")
    exchange.names.update(truncate="truncate_prompt_tokens")
    return PooledRequest(
        kind=kind,
        dimensions=dimensions,
        truncate=body.truncate_prompt_tokens,
        rid=body.rid,
        call_id=exchange.label,
        cache_salt=body.cache_salt,
        priority=body.priority,
        tenant=body.tenant,
        deadline_s=body.deadline_s,
        **given,
    )
