"""The requests that are open in the main process: under which ids, as which turns of sessions, and since when without a
pause. Knows no channel and no observer."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.managers.errors import RequestError
from jackfield.managers.requests.checked_request import CheckedRequest
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.sessions.sessions import Sessions
from jackfield.observability.clock import Clock


class LiveRequests:
    """rid_to_state   from `enter` until `close`
    busy_since     when the first of those that are open now was begun; None while none is
    """

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self.rid_to_state: dict[str, ReqState] = {}
        self.busy_since: float | None = None
        self._labels: dict[str, int] = {}
        self._sessions = sessions
        self._clock = clock

    def begin(self, checked: Sequence[CheckedRequest]) -> None:
        """A call's requests are about to be handed over: either all of them are entered next, or `withdraw` is called.

        Raises RequestError for an id that is in use, and as `Sessions.begin`.
        """
        names = [name for one in checked for name in one.state.own_names]
        if len(set(names)) < len(names) or not self._labels.keys().isdisjoint(names):
            raise RequestError("rid is used twice, or by a request that is still running", param="rid")
        for one in checked:
            if (resumption := one.resumption) is not None:
                prompt = one.request.input_ids[len(resumption.context) :]
                one.state.turn = self._sessions.begin(resumption, one.state.label, prompt, one.granted)
        if not self.rid_to_state:
            self.busy_since = self._clock.now()

    def withdraw(self, checked: Sequence[CheckedRequest]) -> None:
        """What was begun is not entered."""
        if not self.rid_to_state:
            self.busy_since = None
        for one in checked:
            self._end_turn(one.state)

    def enter(self, state: ReqState) -> None:
        self.rid_to_state[state.rid] = state
        for name in state.names:
            self._labels[name] = self._labels.get(name, 0) + 1

    def labelled(self, label: str) -> list[ReqState]:
        """Those that a client knows under this id and whose answer is not complete: one, all choices of one prompt, or
        none."""
        return [state for state in self.rid_to_state.values() if label in state.names and state.finish is None]

    def finish(self, state: ReqState) -> None:
        """Its answer is complete: its ids may be used again."""
        for name in state.names:
            self._labels[name] -= 1
            if not self._labels[name]:
                del self._labels[name]

    def close(self, state: ReqState) -> None:
        """The scheduler holds nothing of it any more."""
        del self.rid_to_state[state.rid]
        self._end_turn(state)
        if not self.rid_to_state:
            self.busy_since = None

    def _end_turn(self, state: ReqState) -> None:
        """With the answer if it has a complete one."""
        if state.turn is not None:
            answered = state.finish is not None and state.finish.type in ("stop", "length")
            self._sessions.end(state.turn, state.output_ids if answered else None)
