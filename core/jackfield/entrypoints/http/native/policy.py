"""The route of the schedule policy: which one runs, and another in its place."""

from __future__ import annotations

from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, Reply, json_response
from jackfield.entrypoints.server_info import policy_info


async def schedule_policy(exchange: Exchange) -> Reply:
    """GET tells the policy that runs; POST swaps, and tells what its own swap put in place, whoever swapped after it."""
    replica = exchange.service.serving.replica
    if exchange.method != "POST":
        return json_response(policy_info(replica.stacks))
    name, options = exchange.body.name, exchange.body.options or {}
    reply = await exchange.service.ask(lambda manager: manager.control.swap_policy(name, options))
    if not reply.ok:
        raise ApiError(400, reply.message, code="policy_refused")
    told: dict[str, Any] = {"changed": reply.detail["changed"], **policy_info(replica.stacks, reply.detail["epoch"])}
    return json_response(told)
