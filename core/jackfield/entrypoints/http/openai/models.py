"""`/v1/models`: the one that is served."""

from __future__ import annotations

from typing import Any

from jackfield.entrypoints.http.exchange import Exchange, Reply, json_response, unknown_model


async def models(exchange: Exchange) -> Reply:
    return json_response({"object": "list", "data": [_model(exchange)]})


async def model(exchange: Exchange) -> Reply:
    served = _model(exchange)
    if exchange.path["model"] != served["id"]:
        raise unknown_model(exchange.path["model"], served["id"])
    return json_response(served)


def _model(exchange: Exchange) -> dict[str, Any]:
    serving = exchange.service.serving
    replica = serving.replica
    return {
        "id": replica.model_name,
        "object": "model",
        "created": serving.created,
        "owned_by": "jackfield",
        "root": replica.args.model_path or replica.model_name,
        "max_model_len": replica.tokenizer_manager.limits.context_length,
        "is_generation": replica.tokenizer_manager.limits.pooling is None,
    }
