"""Routes that tell: health, the model, the stack, numbers."""

from __future__ import annotations

from typing import Any

from jackfield import __version__
from jackfield.entrypoints.calls import MAX_FLUSH_SECONDS
from jackfield.entrypoints.http.errors import ApiError, unavailable
from jackfield.entrypoints.http.exchange import Exchange, Reply, json_response
from jackfield.entrypoints.http.guards.web_pages import refuse_pages
from jackfield.entrypoints.http.service import ServedReplica
from jackfield.entrypoints.server_info import server_info
from jackfield.hookspecs import EMBEDDING, RouteAnswer
from jackfield.hookspecs.kinds import KINDS
from jackfield.managers.fields.tasks import task_of
from jackfield.managers.story import story


async def ping(exchange: Exchange) -> Reply:
    return json_response({"status": "alive"})


async def health(exchange: Exchange) -> Reply:
    if (problem := exchange.service.status.problem) is not None:
        raise unavailable(problem, "unhealthy")
    told = {"status": "healthy"} | _details(exchange)
    return json_response(told)


def _details(exchange: Exchange) -> dict[str, Any]:
    """What an operator wants to know of a server that works all the same."""
    monitor = exchange.service.monitor
    if monitor is None:
        return {}
    _, found = monitor.health.status()
    return {name: found[name] for name in ("last_step_age_s", "quarantined", "degraded", "overruns")}


async def ready(exchange: Exchange) -> Reply:
    status = exchange.service.status
    if not status.accepts:
        raise unavailable(status.problem or "the server takes no requests", "not_ready")
    return json_response({"status": "ready"})


async def model_info(exchange: Exchange) -> Reply:
    replica = exchange.service.serving.replica
    limits = replica.tokenizer_manager.limits
    tokenizer = replica.tokenizer_manager.tokenizer
    return json_response(
        {
            "model_path": replica.args.model_path or replica.model_name,
            "served_model_name": replica.model_name,
            "weight_version": replica.args.weight_version,
            "is_generation": limits.pooling is None,
            "task": task_of(limits.pooling),
            "embedding_size": limits.pooling.width if task_of(limits.pooling) == EMBEDDING and limits.pooling else None,
            "labels": None if limits.pooling is None else list(limits.pooling.labels),
            "has_tokenizer": tokenizer is not None,
            "has_chat_template": replica.template_manager.has_template,
            **_parsers(replica),
            "context_length": limits.context_length,
            "vocab_size": limits.vocab_size,
            "max_total_tokens": limits.total_slots,
            "page_size": limits.page_size,
        }
    )


def _parsers(replica: ServedReplica) -> dict[str, Any]:
    """Which parsers read the answers of a chat, and why these. No parser: None."""
    told: dict[str, Any] = {}
    filled = {change.field: change.rule for change in replica.resolution.changes}
    for part, field in KINDS["parser"].parts.items():
        plugin = replica.resolution.stack.one("parser", part)
        told[field] = None if plugin is None else plugin.name
        told[f"{field}_reason"] = filled.get(field) or (
            f"--{field.replace('_', '-')}" if plugin is None else plugin.reason
        )
    return told


async def info(exchange: Exchange) -> Reply:
    state = await exchange.service.ask(lambda manager: manager.control.request_state())
    return json_response(server_info(exchange.service.serving.replica, state.data))


async def why(exchange: Exchange) -> Reply:
    name = exchange.path["rid"]
    reply = await exchange.service.ask(lambda manager: manager.control.why(name))
    told = story(reply.detail, name)
    if not reply.detail["requests"]:
        raise ApiError(404, told[0], code="request_not_known")
    return json_response({**reply.detail, "story": told})


async def plugins(exchange: Exchange) -> Reply:
    serving = exchange.service.serving
    state = await exchange.service.ask(lambda manager: manager.control.request_state())
    told = server_info(serving.replica, state.data)
    return json_response(
        {
            "version": __version__,
            "stack": told["stack"],
            **serving.replica.monitor.plugins.of_stack(serving.replica.stacks.stack),
            "hooks": serving.replica.monitor.timings(),
            "faults": serving.replica.monitor.faults(),
        }
    )


async def metrics(exchange: Exchange) -> Reply:
    monitor = exchange.service.serving.replica.monitor
    accept = exchange.headers.get("accept", "")
    shown = await exchange.service.told(lambda: monitor.expose(accept))
    if shown is None:
        raise ApiError(
            404, "no metrics sink is part of this run: start the server with --metrics prometheus", code="no_metrics"
        )
    return RouteAnswer(body=shown.body, media_type=shown.content_type)


async def flush_cache(exchange: Exchange) -> Reply:
    """Refused while anything runs; with ?timeout=SECONDS it waits for the server to be idle, one at a time."""
    refuse_pages(exchange)
    seconds = _timeout(exchange.query.get("timeout"))
    reply = await exchange.service.ask(lambda manager: manager.control.flush_cache(seconds), seconds)
    if not reply.ok:
        raise ApiError(400, reply.message, code="not_idle")
    return json_response({"success": True, "message": "the cache was flushed"})


def _timeout(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_FLUSH_SECONDS:
        raise ApiError(
            400,
            f"timeout is a number of seconds from 0 to {MAX_FLUSH_SECONDS:g}",
            param="timeout",
            code="invalid_value",
        )
    return seconds


async def abort_request(exchange: Exchange) -> Reply:
    body = exchange.body
    if (body.rid is None) == (not body.abort_all):
        raise ApiError(400, "give exactly one of rid and abort_all: true", param="rid", code="invalid_value")
    service = exchange.service
    if body.abort_all:
        count = service.abort_all(body.abort_message)
    else:
        count = service.abort(lambda manager: manager.labelled(body.rid), body.abort_message)
    return json_response({"aborted": count})
