"""What Ollama's clients ask about models: there is one, and it is loaded."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from jackfield.hookspecs import ModelCard, RouteAnswer, RouteError, RouteRequest
from jackfield_routes_ollama.schemas import ShowBody

LATEST = ":latest"
FOREVER = "2318-12-31T23:59:59Z"


def check_model(card: ModelCard, name: str | None) -> None:
    """Ollama's clients may add the tag. Raises RouteError 404."""
    if name is None or name.removesuffix(LATEST) != card.name.removesuffix(LATEST):
        raise RouteError(
            404, f"model {(name or '')[:200]!r} not found: {card.name!r} is served", code="model_not_found"
        )


async def tags(request: RouteRequest) -> RouteAnswer:
    card = request.runtime.model
    listed = {**_named(card), "modified_at": _time(card), "size": card.nbytes or 0}
    return RouteAnswer(body={"models": [listed]})


async def ps(request: RouteRequest) -> RouteAnswer:
    card = request.runtime.model
    size = card.nbytes or 0
    running = {
        **_named(card),
        "size": size,
        "expires_at": FOREVER,
        "size_vram": 0,
        "context_length": card.context_length,
    }
    return RouteAnswer(body={"models": [running]})


async def show(request: RouteRequest) -> RouteAnswer:
    body: ShowBody = request.body
    card = request.runtime.model
    check_model(card, body.model or body.name)
    family = _family(card)
    return RouteAnswer(
        body={
            "modelfile": f"# served by Jackfield\nFROM {card.name}\n",
            "parameters": "",
            "template": card.chat_template,
            "details": _details(card),
            "model_info": {
                "general.architecture": family,
                "general.parameter_count": card.parameter_count,
                f"{family}.context_length": card.context_length,
                f"{family}.vocab_size": card.vocab_size,
            },
            "capabilities": _capabilities(card),
            "modified_at": _time(card),
        }
    )


def _capabilities(card: ModelCard) -> list[str]:
    if not card.is_generation:
        return ["embedding"]
    found = ["completion"]
    if "tools" in card.chat_template:
        found.append("tools")
    if "think" in card.chat_template:
        found.append("thinking")
    return found


def _named(card: ModelCard) -> dict[str, Any]:
    return {"name": card.name, "model": card.name, "digest": _digest(card), "details": _details(card)}


def _details(card: ModelCard) -> dict[str, Any]:
    family = _family(card)
    count = card.parameter_count
    return {
        "parent_model": "",
        "format": "gguf" if card.path.endswith(".gguf") else "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": "" if count is None else f"{count / 1e6:.0f}M",
        "quantization_level": card.quantization or card.dtype,
    }


def _family(card: ModelCard) -> str:
    said = card.config.get("model_type")
    return said if isinstance(said, str) and said else card.architecture.lower()


def _digest(card: ModelCard) -> str:
    """Of what identifies the model here: its name, configuration and size. The weights are not read for it."""
    identity = json.dumps([card.name, card.config, card.nbytes], sort_keys=True, default=str)
    return hashlib.sha256(identity.encode()).hexdigest()


def _time(card: ModelCard) -> str:
    return datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z")
