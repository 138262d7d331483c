"""Gates with one fault each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from jackfield.hookspecs import Gate, GateAnswer, GateEvent, RequestFault, hookimpl

POLL = "poll_tells_of_those_who_wait_and_once"
CAUGHT = {
    "good": (),
    "answers-true": ("enter_answers_at_once", "*"),
    "refuses-with-200": ("enter_answers_at_once", "*"),
    "tells-twice": (POLL,),
    "tells-of-strangers": (POLL, "poll_of_an_empty_gate"),
    "tells-of-nobody": ("poll_of_an_empty_gate", POLL),
    "sleeps": ("nothing_blocks",),
    "reads-a-file": ("nothing_blocks",),
    "looks-at-all-pairs": ("poll_is_cheap_in_a_crowd",),
    "closes-once": ("close_twice",),
}


class Good(Gate):
    """Lets everybody in at the second poll."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}

    def enter(self, request: Any) -> Any:
        self.waiting[request.uid] = 0
        return GateAnswer.WAITING

    def poll(self) -> Sequence[GateEvent]:
        ended = [uid for uid, polls in self.waiting.items() if polls]
        self.waiting = {uid: polls + 1 for uid, polls in self.waiting.items() if not polls}
        return [GateEvent(uid=uid) for uid in ended]

    def cancel(self, uid: int) -> None:
        self.waiting.pop(uid, None)


class AnswersTrue(Good):
    def enter(self, request: Any) -> Any:
        return True


class RefusesWith200(Good):
    def enter(self, request: Any) -> Any:
        raise RequestFault("fine", status_code=200)


class TellsTwice(Good):
    def poll(self) -> Sequence[GateEvent]:
        events = super().poll()
        return [*events, *events]


class TellsOfStrangers(Good):
    def poll(self) -> Sequence[GateEvent]:
        return [GateEvent(uid=event.uid + 1000) for event in super().poll()]


class TellsOfNobody(Good):
    def poll(self) -> Sequence[GateEvent]:
        return super().poll() or [GateEvent(uid=0)]


class Sleeps(Good):
    def poll(self) -> Sequence[GateEvent]:
        time.sleep(0)
        return super().poll()


class ReadsAFile(Good):
    def enter(self, request: Any) -> Any:
        with open("/dev/null", encoding="utf-8") as file:
            file.read()
        return super().enter(request)


class LooksAtAllPairs(Good):
    def poll(self) -> Sequence[GateEvent]:
        assert sum(one == other for one in self.waiting for other in self.waiting) == len(self.waiting)
        return super().poll()


class ClosesOnce(Good):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


@hookimpl
def jackfield_gate(context: Any) -> Gate:
    made: Gate = globals()[context.name.replace("-", " ").title().replace(" ", "")]()
    return made
