"""`best_of`: more answers than are returned, and which of them are. The best have the highest mean log-probability a token,
of the model's raw logits, as `logprobs` tells them; of equals the earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange
from jackfield.entrypoints.http.schemas.openai import CompletionBody
from jackfield.managers.fields.choices import choice_count
from jackfield.managers.requests.req_state import ReqState


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """returned: answers to each prompt that the client gets; made: those that are computed."""

    returned: int
    made: int

    @property
    def chosen_among(self) -> bool:
        return self.made > self.returned

    def best(self, states: Sequence[ReqState], choices: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The choices to return, numbered anew: prompt i's best at i * returned. states: theirs, in the order of the prompts."""
        kept: list[dict[str, Any]] = []
        for first in range(0, len(states), self.made):
            ranked = sorted(range(first, first + self.made), key=lambda i: _rank(states[i]))
            kept += (choices[i] for i in ranked[: self.returned])
        return [{**choice, "index": index} for index, choice in enumerate(kept)]


def candidates(exchange: Exchange, body: CompletionBody) -> Candidates:
    """What `n` and `best_of` ask for. Raises RequestError, ApiError naming the field."""
    most = exchange.service.args.max_choices
    returned = choice_count("n", body.n, most) or 1
    made = choice_count("best_of", body.best_of, most) or returned
    if made < returned:
        raise _refused(f"best_of is {made} and n is {returned}: no more can be returned than are made")
    if made > returned and body.stream:
        raise _refused("best_of above n cannot be streamed: which answers are the best is known at their end")
    return Candidates(returned=returned, made=made)


def _rank(state: ReqState) -> tuple[bool, float]:
    """Lower is better. What an operator's abort has cut off is behind all that ended by itself."""
    assert state.logprobs is not None
    aborted = state.finish is not None and state.finish.type == "abort"
    return aborted, -state.logprobs.mean()


def _refused(message: str) -> ApiError:
    return ApiError(400, message, param="best_of", code="invalid_value")
