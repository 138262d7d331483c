"""A request's life in plain words, from the plain values that `DecisionLog.why` gives. Knows no scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WAITED: Mapping[str, str] = {
    "decodes_first": "running requests decode first",
    "places": "as many ran as may",
    "tokens": "the step's prompt tokens were spent",
    "memory": "the KV memory did not suffice for the request at the head",
    "cuts": "the next prompt would have been cut, and as many were cut already as may be",
    "held": "the policy held everybody back",
    "candidates": "as many were looked at as the policy allows",
    "left_out": "the policy's order left it out",
    "retracting": "memory had to come back from running requests",
    "passed": "the policy passed it over",
    "twin": "a running request computed the same tokens",
}

_NUMBERS: Mapping[str, str] = {
    "places": "{running} of {most} places were taken",
    "tokens": "{taken} prompt tokens were in the step",
    "memory": "{who} needed {needed} KV slots; {free} were free and {evictable} could be evicted, of which {promised} "
    "were promised to running requests",
    "cuts": "{who} missed {missing} tokens, and {left} were left in the step",
    "candidates": "{looked_at} were looked at",
    "left_out": "the order left out {left_out} of those who waited",
    "retracting": "{needed} KV slots were needed; {free} were free and {evictable} could be evicted",
    "twin": "{cached} of its tokens were in the cache",
}


def story(answer: Mapping[str, Any], name: str) -> list[str]:
    """Lines for a terminal. answer: `requests`, `ring` and `ended_kept`; name: the id that was asked for."""
    if not answer["requests"]:
        return [f"No request {name!r} is known here. {how_far(answer)}"]
    lines = []
    for life in answer["requests"]:
        lines += life_story(life)
        lines.append("")
    lines.append(how_far(answer))
    lines += [
        f"After step {swap['step']} the schedule policy {swap['policy']!r} took the place of {swap['previous']!r} "
        f"(stack epoch {swap['epoch']}, {swap['stack_hash'][:12]})."
        for swap in answer["swaps"]
    ]
    return lines


def how_far(answer: Mapping[str, Any]) -> str:
    """How far back the record goes."""
    ring = answer["ring"]
    steps = (
        f"the last {_count(ring['steps'], 'step')} ({ring['first']} to {ring['last']})"
        if ring["steps"]
        else "no step yet"
    )
    return (
        f"The record holds {steps}, all open requests and the last {answer['ended_kept']:,} that ended; a request that "
        "was refused before it came to the scheduler is not in it."
    )


def life_story(life: Mapping[str, Any]) -> list[str]:
    """One request's life."""
    number = f"number {life['uid']}" if life["uid"] else "never got in"
    known = f", also {', '.join(life['also_known_as'])}" if life["also_known_as"] else ""
    lines = [f"Request {life['id']} ({number}{known}): {life['state']}"]
    for event in life["events"]:
        at = f"{event['at']:+10.3f} s" if "at" in event else " " * 12
        first, *rest = _TELLERS[event["event"]](life, event)
        lines.append(f"{at}  {first}")
        lines += [f"{'':12}  {line}" for line in rest]
    if life["events_forgotten"]:
        lines.append(
            f"{'':12}  ({_count(life['events_forgotten'], 'event')} in the middle of this life were forgotten)"
        )
    if life["state"] == "waiting":
        waited = _waited(life, life["waiting_for"], life.get("last_round"), "has waited")
        lines += [f"{'':12}  {line}" for line in waited]
    return lines


def _arrived(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    return [
        f"arrived after step {event['step']}: {_count(life['prompt_tokens'], 'prompt token')}, at most "
        f"{life['max_new_tokens']:,} new; {event['waiting']:,} waited and {event['running']:,} ran"
    ]


def _refused(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    status = f" ({event['status_code']})" if event["status_code"] else ""
    return [f"refused{status}: {event['message']}"]


def _gated(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    return [f"waits at {event['gate']} for something that it needs"]


def _opened(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    return ["what it waited for at the gate is there"]


def _admitted(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    skips = f"; others overtook it {_count(event['skips'], 'time')}" if event["skips"] else ""
    return [
        f"admitted in step {event['step']}: {event['cached']:,} of {_count(event['known'], 'token')} came out of the "
        f"cache{skips}",
        *_waited(life, event["rounds"], event.get("last_round"), "until then it waited"),
    ]


def _prefill(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    tokens = _count(event["tokens"], "token")
    if event["chunks"] == 1:
        return [f"step {event['step']} computes {tokens}"]
    return [f"steps {event['step']} to {event['last_step']} compute {tokens} in {event['chunks']} chunks"]


def _first_token(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    return [f"first token, by step {event['step']}"]


def _swapped(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    return [
        f"after step {event['step']} the schedule policy {event['policy']!r} took the place of {event['previous']!r} "
        f"(stack epoch {event['epoch']})"
    ]


def _retracted(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    for_whom = f"request number {event['for_uid']}" if event["for_uid"] else "requests that run"
    return [
        f"retracted after step {event['step']}: its memory went to {for_whom}; its {_count(event['outputs'], 'token')} "
        "so far stay, what it computed is computed again unless the cache still has it"
    ]


def _ended(life: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    how = {"stop": "by a stop", "length": "at its greatest length", "abort": "aborted"}.get(
        event["type"], event["type"]
    )
    matched = f" ({event['matched']!r})" if "matched" in event else ""
    message = f": {event['message']}" if "message" in event else ""
    status = f" ({event['status_code']})" if "status_code" in event else ""
    lines = [
        f"ended after step {event['step']}, {how}{matched}{status}, with {_count(event['outputs'], 'token')}{message}"
    ]
    lines += _waited(life, event["rounds"], event.get("last_round"), "until then it waited")
    if event["stalled"]:
        lines.append(f"between its tokens it stood {_count(event['stalled'], 'step')}, in which prompts were computed")
    return lines


_TELLERS = {
    "arrived": _arrived,
    "refused": _refused,
    "gated": _gated,
    "opened": _opened,
    "admitted": _admitted,
    "prefill": _prefill,
    "first_token": _first_token,
    "retracted": _retracted,
    "swapped": _swapped,
    "ended": _ended,
}


def _waited(life: Mapping[str, Any], rounds: Mapping[str, int], last: Mapping[str, Any] | None, how: str) -> list[str]:
    if not rounds:
        return []
    parts = [
        f"{count:,} because {_WAITED[reason]}" for reason, count in sorted(rounds.items(), key=lambda row: -row[1])
    ]
    lines = [f"{how} {_count(sum(rounds.values()), 'round')}: {', '.join(parts)}"]
    if last is not None and last["reason"] in _NUMBERS:
        who = f"request number {last['uid']}" if last["uid"] else "the next request"
        if last["uid"] == life["uid"]:
            who = "it"
        lines.append(f"in the last of them, {_NUMBERS[last['reason']].format_map({**last, 'who': who})}")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
