"""What became of each request: a short log of its own, kept while it is open and for the last that ended.

A log grows with what happened to the request (admissions, chunks run together, retractions), not with its tokens. Knows no
tables and decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from jackfield.hookspecs.decisions import WaitReason
from jackfield.ipc.messages import FinishReason, TokenizedGenerateRequest

REASONS: tuple[WaitReason, ...] = tuple(WaitReason)
PLACE: Mapping[WaitReason, int] = {reason: i for i, reason in enumerate(REASONS)}

MAX_EVENTS = 128
"""Of one request; of more, the middle ones are forgotten and counted."""

MAX_FOUND = 32
"""Lives told of under one name, the newest."""


class Life:
    """names      ids under which people know the request, the one in its answer first
    waits        rounds, by reason, in which it waited so far; complete only after `settle`
    gate         at which it waits, "" if at none
    seen         the counts of rounds, by reason, when it began to wait; None while it does not
    first_token  the step that gave it; 0 before
    stalled      steps in which running requests stood until then
    """

    __slots__ = (
        "arrived",
        "dropped",
        "events",
        "finish",
        "first_token",
        "gate",
        "max_new_tokens",
        "names",
        "prompt_tokens",
        "seen",
        "stalled",
        "uid",
        "waits",
    )

    def __init__(self, message: TokenizedGenerateRequest, *, uid: int, max_new_tokens: int, arrived: float) -> None:
        self.uid = uid
        self.names = tuple(dict.fromkeys((*message.names, message.rid)))
        self.prompt_tokens = len(message.input_ids)
        self.max_new_tokens = max_new_tokens
        self.arrived = arrived
        self.events: list[dict[str, Any]] = []
        self.dropped = 0
        self.gate = ""
        self.waits = [0] * len(REASONS)
        self.seen: tuple[int, ...] | None = None
        self.first_token = 0
        self.stalled = 0
        self.finish: FinishReason | None = None

    def tell(self, event: str, step: int, now: float, **numbers: Any) -> None:
        """now: seconds on the scheduler's clock; they are kept from arrival."""
        self.events.append({"event": event, "step": step, "at": round(now - self.arrived, 6), **numbers})
        if len(self.events) > MAX_EVENTS:
            del self.events[MAX_EVENTS // 2]
            self.dropped += 1

    def chunk(self, step: int, tokens: int) -> None:
        """It computes so many prompt tokens in this step; steps in a row are one event."""
        last = self.events[-1]
        if last["event"] == "prefill":
            last["last_step"] = step
            last["chunks"] += 1
            last["tokens"] += tokens
        else:
            self.events.append({"event": "prefill", "step": step, "last_step": step, "chunks": 1, "tokens": tokens})

    def settle(self, rounds: list[int]) -> dict[str, int]:
        """It waits no more: reason -> rounds of this wait."""
        waits = self.waited(rounds)
        self.waits = [0] * len(REASONS)
        self.seen = None
        return waits

    def waited(self, rounds: list[int]) -> dict[str, int]:
        """Reason -> rounds of the wait that is under way."""
        if self.seen is None:
            return {}
        counts = (own + now - before for own, now, before in zip(self.waits, rounds, self.seen, strict=True))
        return {reason.value: count for reason, count in zip(REASONS, counts, strict=True) if count > 0}

    def as_data(self, rounds: list[int]) -> dict[str, Any]:
        """Plain values, see `hookspecs.RequestLife`."""
        if self.finish is not None:
            state = "finished"
        elif self.gate:
            state = "gated"
        else:
            state = "running" if self.seen is None else "waiting"
        return {
            "id": self.names[0],
            "also_known_as": list(self.names[1:]),
            "uid": self.uid,
            "state": state,
            "prompt_tokens": self.prompt_tokens,
            "max_new_tokens": self.max_new_tokens,
            "waiting_for": self.waited(rounds),
            "events_forgotten": self.dropped,
            "events": [dict(event) for event in self.events],
        }


class Lives:
    """ended: how many ended requests are kept."""

    def __init__(self, ended: int) -> None:
        self.kept = ended
        self._open: dict[int, Life] = {}
        self._ended: deque[Life] = deque()
        self._named: dict[str, list[Life]] = {}

    def __getitem__(self, uid: int) -> Life:
        return self._open[uid]

    def get(self, uid: int) -> Life | None:
        """Of an open request."""
        return self._open.get(uid)

    def __iter__(self) -> Iterator[Life]:
        return iter(self._open.values())

    def open(self, life: Life) -> None:
        self._open[life.uid] = life
        self._name(life)

    def end(self, life: Life) -> None:
        """Open, or never opened (a request that was refused)."""
        if self._open.pop(life.uid, None) is None:
            self._name(life)
        self._ended.append(life)
        if len(self._ended) > self.kept:
            self._forget(self._ended.popleft())

    def find(self, name: str) -> list[Life]:
        """Those known under this name, or under it with the number of a prompt of theirs, oldest first."""
        found = list(self._named.get(name, ()))
        if not found:
            number = 0
            while more := self._named.get(f"{name}-{number}"):
                found += more
                number += 1
        return found[-MAX_FOUND:]

    def _name(self, life: Life) -> None:
        for name in life.names:
            self._named.setdefault(name, []).append(life)

    def _forget(self, life: Life) -> None:
        for name in life.names:
            others = [other for other in self._named[name] if other is not life]
            if others:
                self._named[name] = others
            else:
                del self._named[name]
