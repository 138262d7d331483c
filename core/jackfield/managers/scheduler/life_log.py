"""What each request's life is told as it happens: arrival, gates, admission, prompt chunks, retraction, first token, end.

A request that waits is not touched at all: rounds are counted by the reason why they ended, and the difference between two
moments is what it waited for. Decides nothing, and knows no steps but by number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jackfield.hookspecs import StackChanged
from jackfield.hookspecs.decisions import RequestLife, WaitReason
from jackfield.ipc.messages import FinishReason, TokenizedGenerateRequest
from jackfield.managers.scheduler.lives import PLACE, Life, Lives
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.step_entry import Pass, plain


class LifeLog:
    """ended   how many ended requests' lives are kept
    on      False: no life is opened, and everything that would be told of one is nothing
    wanted  somebody wants the lives of those that end: `take` gives them
    step    the newest step whose results were applied; events between steps are told with it
    last    why the newest round looked at nobody else
    """

    def __init__(self, *, ended: int, on: bool, wanted: bool) -> None:
        self.step = 0
        self.last: Pass | None = None
        self._on = on
        self._wanted = wanted
        self._lives = Lives(ended)
        self._told: list[RequestLife] = []
        self._rounds = [0] * len(WaitReason)
        self._stalls = 0

    def __iter__(self) -> Iterator[Life]:
        """The open ones."""
        return iter(self._lives)

    @property
    def rounds(self) -> Sequence[int]:
        """Rounds that ended with somebody waiting, by reason."""
        return self._rounds

    @property
    def kept(self) -> int:
        """How many ended requests' lives are kept at most."""
        return self._lives.kept

    # one request

    def arrived(self, request: Request, message: TokenizedGenerateRequest, waiting: int, running: int) -> None:
        """waiting, running: requests before it."""
        if not self._on:
            return
        life = Life(message, uid=request.uid, max_new_tokens=request.max_new_tokens, arrived=request.arrival)
        life.seen = tuple(self._rounds)
        life.tell("arrived", self.step, request.arrival, waiting=waiting, running=running)
        self._lives.open(life)

    def refused(self, message: TokenizedGenerateRequest, reason: FinishReason, now: float) -> None:
        """It never got in."""
        if not self._on:
            return
        life = Life(message, uid=0, max_new_tokens=message.sampling.max_new_tokens, arrived=now)
        life.finish = reason
        life.tell("refused", self.step, now, message=reason.message, status_code=reason.status_code)
        self._finish(life)

    def gated(self, request: Request, gate: str, now: float) -> None:
        """A gate is closed to it: it is not among those that wait for a place."""
        if (life := self._lives.get(request.uid)) is not None:
            life.gate = gate
            life.seen = None
            life.tell("gated", self.step, now, gate=gate)

    def opened(self, request: Request, now: float) -> None:
        """It is past the gate."""
        if (life := self._lives.get(request.uid)) is not None:
            life.gate = ""
            life.seen = tuple(self._rounds)
            life.tell("opened", self.step, now)

    def admitted(self, uid: int, step: int, now: float, last: dict[str, Any] | None, **numbers: int) -> None:
        """It got a row. last: how the round before ended; it is told if the request has waited."""
        life = self._lives[uid]
        waits = life.settle(self._rounds)
        told: dict[str, Any] = {**numbers, "rounds": waits}
        if waits and last is not None:
            told["last_round"] = last
        life.tell("admitted", step, now, **told)

    def chunk(self, uid: int, step: int, tokens: int) -> None:
        """It computes so many prompt tokens in this step."""
        self._lives[uid].chunk(step, tokens)

    def retracted(self, request: Request, for_uid: int, outputs: int, now: float) -> None:
        """It waits again."""
        life = self._lives[request.uid]
        life.seen = tuple(self._rounds)
        life.tell("retracted", self.step, now, for_uid=for_uid, outputs=outputs)

    def advanced(self, request: Request, step: int, now: float) -> None:
        """The results of a step that computed some of its prompt were applied."""
        life = self._lives.get(request.uid)
        if life is not None and request.output_ids and not life.first_token:
            self._first_token(life, step, now)

    def ended(self, request: Request, finish: FinishReason, now: float) -> None:
        life = self._lives.get(request.uid)
        if life is None:
            return
        outputs = len(request.output_ids)
        if outputs and not life.first_token:
            self._first_token(life, self.step, now)
        waits = life.settle(self._rounds)
        told: dict[str, Any] = {"type": finish.type, "outputs": outputs, "rounds": waits}
        if waits and self.last is not None:
            told["last_round"] = plain(self.last)
        told["stalled"] = self._stalls - life.stalled if life.first_token else 0
        for name in ("matched", "message", "status_code"):
            if (value := getattr(finish, name)) is not None:
                told[name] = value
        life.finish = finish
        life.tell("ended", self.step, now, **told)
        self._finish(life)

    def _first_token(self, life: Life, step: int, now: float) -> None:
        life.first_token = step
        life.stalled = self._stalls
        life.tell("first_token", step, now)

    def _finish(self, life: Life) -> None:
        self._lives.end(life)
        if self._wanted:
            self._told.append(life.as_data(self._rounds))

    # all that wait

    def swapped(self, change: StackChanged) -> None:
        """Another policy decides from here on."""
        for life in self._lives:
            life.tell(
                "swapped", change.step, change.at, epoch=change.epoch, policy=change.instance, previous=change.previous
            )

    def stalled(self) -> None:
        """Requests that could decode stand in this step, because prompts are computed."""
        self._stalls += 1

    def count(
        self, stopped: Pass | None, passed: Sequence[Pass], retracted: Sequence[int], *, anybody_waits: bool
    ) -> None:
        """A round is over. retracted: uids of those that it took back."""
        place = None if stopped is None else PLACE[stopped[1]]
        if place is not None and anybody_waits:
            self._rounds[place] += 1
        if place is not None:
            for uid in retracted:
                if (life := self._lives.get(uid)) is not None and life.seen is not None:
                    life.waits[place] -= 1  # it did not wait yet in the round that took it back
        for uid, reason, _ in passed:
            life = self._lives[uid]
            life.waits[PLACE[reason]] += 1
            if place is not None:
                life.waits[place] -= 1  # it was looked at: it did not wait for what ended the round

    # questions

    def take(self) -> list[RequestLife]:
        """Of those that ended since the last call."""
        lives, self._told = self._told, []
        return lives

    def find(self, name: str) -> list[dict[str, Any]]:
        """The lives of the requests known under this name, see `Lives.find`."""
        return [life.as_data(self._rounds) for life in self._lives.find(name)]
