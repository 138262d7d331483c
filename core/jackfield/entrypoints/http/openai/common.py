"""What both OpenAI routes do alike: the sampling parameters, the ids of answers, and the pieces that a stream is made of."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange, ending, usage
from jackfield.entrypoints.http.openai.logprobs import Tell
from jackfield.entrypoints.http.schemas.openai import SAMPLING_FIELDS, Sampling
from jackfield.managers.requests.req_state import ReqState
from jackfield.managers.requests.untold import untold


def sampling_params(body: Sampling, more: Sequence[str]) -> dict[str, Any]:
    """The fields that clients may send, under the runtime's names. more: further fields of this route."""
    return {name: value for name in (*SAMPLING_FIELDS, *more) if (value := getattr(body, name)) is not None}


def check_stream_options(body: Sampling) -> bool:
    """Whether the usage is asked for in the stream."""
    if body.stream_options is None:
        return False
    if not body.stream:
        raise ApiError(
            400, "stream_options is allowed only with stream: true", param="stream_options", code="invalid_value"
        )
    return bool(body.stream_options.include_usage)


def continuous_usage(body: Sampling) -> bool:
    """Whether every chunk is to have the usage so far."""
    options = body.stream_options
    return options is not None and bool(options.include_usage) and bool(options.continuous_usage_stats)


@dataclass(frozen=True, kw_only=True)
class Head:
    """What every object of one answer begins with. labels: the requests' ids, by which /abort_request knows them."""

    id: str
    created: int
    model: str
    fingerprint: str

    @classmethod
    def new(cls, exchange: Exchange, prefix: str) -> Head:
        serving = exchange.service.serving
        return cls(
            id=f"{prefix}-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=serving.replica.model_name,
            fingerprint=serving.fingerprint,
        )

    def labels(self, count: int) -> list[str]:
        """One request has the answer's own id; several have it with their number."""
        return [self.id] if count == 1 else [f"{self.id}-{i}" for i in range(count)]

    def object(self, kind: str, choices: list[dict[str, Any]], tokens: Mapping[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
            "usage": tokens,
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of one choice.

    ending    with the last: the fields that say how it ended
    usage     of the whole call, when this piece completes it
    logprobs  of the tokens that came with the text, those held back with it included; None: not asked for
    so_far    tokens of its prompt, and those of this choice up to here
    """

    index: int
    text: str
    ending: dict[str, Any] | None
    usage: dict[str, Any] | None = None
    logprobs: dict[str, Any] | None = None
    so_far: tuple[int, int] = (0, 0)


def pieces(states: Sequence[ReqState], tell: Tell | None = None) -> list[Piece]:
    """A reader for `Service.news`. Raises RequestError for a request that failed. tell: see `openai.logprobs`."""
    found = []
    for state, text, _, over in untold(states):
        if not text and not over:
            continue
        done = over and all(other.told for other in states)
        end = ending(state.finish) if over else None
        logprobs = None if tell is None else tell(state)
        so_far = state.prompt_tokens, len(state.output_ids)
        found.append(Piece(state.index, text, end, usage(states) if done else None, logprobs, so_far))
    return found
