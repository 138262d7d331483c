"""From the bytes of a stream, stamped as they came, to when how many of its tokens were there.

How tokens are counted, best first: by the usage that each chunk tells; by the usage at the end, spread evenly over the chunks
that had content; by those chunks, one token each, where no usage is told, or one of no tokens. Which it was is told with the
figures. What came with one read of the socket is one arrival, whatever it held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec

from jackfield.entrypoints.bench.apis import SHOWN, Api, error_text

DONE = b"[DONE]"

BY_CHUNK, AT_END, NO_USAGE = "usage of each chunk", "usage at the end, spread over the chunks", "chunks: no usage told"


@dataclass(kw_only=True)
class Heard:
    """What came of a request, unread. due, sent, ended: on the client's clock, in seconds; pieces: (when, bytes) of each read.

    status   of the response, None without one
    failure  kind and message; None as far as the connection knows of none
    """

    due: float
    sent: float
    wanted: int
    ended: float = 0.0
    status: int | None = None
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    failure: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """arrivals: (when, how many tokens came), ascending; empty where it failed before the first. failure: kind and message."""

    due: float
    sent: float
    ended: float
    wanted: int
    arrivals: list[tuple[float, float]]
    counted: str = NO_USAGE
    finish: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    failure: tuple[str, str] | None = None

    @property
    def tokens(self) -> float:
        return sum(count for _, count in self.arrivals)


def events(pieces: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """(when it was complete, its data) of each server-sent event; comments and other fields are left out."""
    rest, when = b"", 0.0
    for when, data in pieces:
        *blocks, rest = (rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            yield from ((when, found) for found in _data(block))
    # Some servers leave out the last blank line.
    yield from ((when, found) for found in _data(rest))


def _data(block: bytes) -> Iterator[bytes]:
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    if lines:
        yield b"\n".join(lines)


def read(heard: Heard, api: Api) -> Answer:
    """Reads what came. Whatever a server sends ends up in `failure` at worst."""
    seen: list[tuple[float, Any]] = []
    failure, done = heard.failure, False
    if heard.status not in (None, 200):
        body = b"".join(data for _, data in heard.pieces)
        return _failed(heard, (f"HTTP {heard.status}", _message(body)))
    for when, data in events(heard.pieces):
        if data == DONE:
            done = True
            continue
        try:
            said = api.said(msgspec.json.decode(data))
        except (msgspec.DecodeError, AttributeError, TypeError, KeyError, ValueError):
            failure = failure or ("not understood", data[:SHOWN].decode(errors="replace"))
            break
        if said.error is not None:
            failure = failure or ("error in the stream", said.error)
            break
        seen.append((when, said))
    finish = next((said.finish for _, said in seen if said.finish), None)
    if failure is None and not done and finish is None:
        failure = ("broken off", f"the stream ended without [DONE] or a reason, after {len(seen)} events")
    arrivals, counted = _arrivals(seen)
    if failure is None and not arrivals:
        failure = ("no token", f"the stream ended ({finish}) and had no token")
    told = {
        name: next((value for _, said in reversed(seen) if (value := getattr(said, name)) is not None), None)
        for name in ("prompt_tokens", "cached_tokens")
    }
    return Answer(
        due=heard.due,
        sent=heard.sent,
        ended=heard.ended,
        wanted=heard.wanted,
        arrivals=arrivals,
        counted=counted,
        finish=finish,
        failure=failure,
        **told,
    )


def _arrivals(seen: Sequence[tuple[float, Any]]) -> tuple[list[tuple[float, float]], str]:
    if any(said.tokens is not None and not said.final_usage for _, said in seen):
        found, so_far = [], 0
        for when, said in seen:
            if said.tokens is not None and said.tokens > so_far:
                found.append((when, float(said.tokens - so_far)))
                so_far = said.tokens
        return _merged(found), BY_CHUNK
    chunks = [when for when, said in seen if said.content]
    total = next((said.tokens for _, said in reversed(seen) if said.tokens is not None), None)
    if not chunks:
        return [], NO_USAGE
    each = total / len(chunks) if total else 1.0
    return _merged([(when, each) for when in chunks]), AT_END if total else NO_USAGE


def _merged(found: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(when, sum(count for _, count in group)) for when, group in groupby(found, key=lambda one: one[0])]


def _failed(heard: Heard, failure: tuple[str, str]) -> Answer:
    return Answer(due=heard.due, sent=heard.sent, ended=heard.ended, wanted=heard.wanted, arrivals=[], failure=failure)


def _message(body: bytes) -> str:
    try:
        return error_text(msgspec.json.decode(body))
    except msgspec.DecodeError:
        return body[:SHOWN].decode(errors="replace")
