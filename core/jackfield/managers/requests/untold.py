"""What of a call's requests has not been told to its client yet. Knows no protocol and no shape of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jackfield.managers.errors import RequestError
from jackfield.managers.requests.req_state import ReqState


class Untold(NamedTuple):
    """text, ids   that came since the last time
    over           nothing more will come, and the counts of the state are complete
    """

    state: ReqState
    text: str
    ids: list[int]
    over: bool


def untold(states: Sequence[ReqState]) -> Iterator[Untold]:
    """Of each request with news what is new, which then counts as told. Read it while nobody else writes the states. Ids may come
    before their text does. Raises RequestError for a request that failed."""
    for state in states:
        if state.told or not state.has_news:
            continue
        if (error := end_error(state)) is not None:
            raise error
        # The end is told with the scheduler's last word: only then are the counts complete.
        state.told = state.finish is not None and state.closed
        text, ids = state.delta()
        yield Untold(state, text, ids, state.told)


def end_error(state: ReqState) -> RequestError | None:
    """What ended the request if it was an error."""
    finish = state.finish
    if finish is None or finish.type != "abort" or finish.status_code is None:
        return None
    return RequestError(finish.message or "the request failed", status_code=finish.status_code, code=finish.err_type)
