"""Rounds of loads on an endpoint: the requests made ready, sent, and what came of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.apis import Api
from jackfield.entrypoints.bench.asks import Ask
from jackfield.entrypoints.bench.client import Call, closed_loop, new_http, open_loop
from jackfield.entrypoints.bench.load_figures import Limits, figures, results
from jackfield.entrypoints.bench.loads import Load
from jackfield.entrypoints.bench.streams import Answer, Heard, read
from jackfield.entrypoints.bench.usage import Usage

WARM_UP = 99
"""The round whose prompts warm up."""

WARM_UP_REQUESTS, WARM_UP_TOKENS = 8, 8
"""Fewest requests and most tokens of each."""

Tell = Callable[[str, int, int], None]

Sent = tuple[list[Answer], dict[str, float | None], float]


@dataclass(frozen=True, kw_only=True)
class Target:
    """An endpoint as it is measured. extra: fields of every body, a None takes one away; timeout: the longest silence, in
    seconds; ours: whether the server is a child of this process, so that what it uses can be told; flush: called before each
    round, to empty the server's prefix cache; None: it is left as it is."""

    base_url: str
    headers: Mapping[str, str]
    api: Api
    model: str
    ignore_eos: bool = True
    extra: Mapping[str, Any]
    timeout: float
    ours: bool = False
    flush: Callable[[], None] | None = None


def measure(
    target: Target,
    loads: Sequence[Load],
    asks: Callable[[Load, int], Sequence[Ask]],
    repeat: int,
    limits: Limits,
    seed: int,
    tell: Tell,
) -> list[dict[str, Any]]:
    """For each load its rounds and their medians. asks: the requests of a load and a round; round WARM_UP warms up."""
    found = []
    for load in loads:
        few = list(asks(load, WARM_UP))[: max(load.streams, WARM_UP_REQUESTS)]
        warm = [replace(ask, new_tokens=min(ask.new_tokens, WARM_UP_TOKENS)) for ask in few]
        # At the width that is measured then: a server may prepare something for each size of a batch.
        _send(target, Load(mode="closed", value=max(1, load.streams)), warm, "", f"{load}, warming up", tell)
        rounds = []
        for number in range(repeat):
            rounds.append(_round(target, load, asks(load, number), limits, number, seed, tell))
        found.append({"load": load.facts(), "results": results(rounds), "rounds": rounds})
    return found


def _round(
    target: Target, load: Load, asks: Sequence[Ask], limits: Limits, number: int, seed: int, tell: Tell
) -> dict[str, Any]:
    if target.flush is not None:
        target.flush()
    answers, used, client = _send(target, load, asks, f"{seed} {number}", f"{load}, round {number + 1}", tell)
    told = {"round": number, **figures(answers, limits)}
    told["client_cpu_share"] = client / told["seconds"]
    if target.ours:
        told |= {"server_cpu_seconds": (used["cpu_seconds"] or 0.0) - client, "other_cores": used["other_cores"]}
    return told


def _send(target: Target, load: Load, asks: Sequence[Ask], seed: str, what: str, tell: Tell) -> Sent:
    """The answers, what was used meanwhile, and how many CPU seconds this process did."""
    due = load.arrivals(asks, seed)
    calls = [
        Call(body=_body(target, ask), wanted=ask.new_tokens, due=None if due is None else due[place])
        for place, ask in enumerate(asks)
    ]
    tell(what, 0, len(calls))

    async def send() -> tuple[list[Heard], dict[str, float | None], float]:
        async with new_http(target.base_url, target.headers, target.timeout) as http:
            ended = lambda done: tell(what, done, len(calls))  # noqa: E731
            # Here, because making a client takes longer than a round that fails at once.
            before, own = Usage.now(), time.process_time()
            if due is None:
                heard = await closed_loop(http, target.api.path, calls, int(load.value), ended)
            else:
                heard = await open_loop(http, target.api.path, calls, ended)
            client = time.process_time() - own
            return heard, Usage.now().since(before), client

    heard, used, client = asyncio.run(send())
    return [read(one, target.api) for one in heard], used, client


def _body(target: Target, ask: Ask) -> bytes:
    """Raises ConfigurationError for a prompt that the protocol has no place for."""
    if isinstance(ask.prompt, list):
        is_ids = type(ask.prompt[0]) is int
        if is_ids != target.api.takes_ids:
            what, other = ("token ids", "a text or messages") if is_ids else ("messages", "a text or token ids")
            raise ConfigurationError(f"bench: a prompt is {what}, and {target.api.path} takes {other}")
    body = target.api.body(ask, target.model, target.ignore_eos)
    for name, value in target.extra.items():
        if value is None:
            body.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(body.get(name), Mapping):
            body[name] = {**body[name], **value}
        else:
            body[name] = value
    return msgspec.json.encode(body)
