"""The request log: one line for each request when it has ended, refused ones included. Off unless --log-requests.

Levels (--log-requests-level), each with what the one before has:
  0  who and what became of it: ids, route, status, times, counts of tokens
  1  the parameters of generation
  2  the request and its answers, the first characters of them
  3  all of both

A request of `/generate` with `no_logs` has the first level alone, whatever is set.

It never holds a key or a header; salts and sessions are hidden (`redaction`). All that a client wrote stands in JSON strings of
ASCII, so that no request can forge a line. It is written to standard error by a logger of its own, `jackfield.requests`, whatever
--log-level says.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from jackfield.config.server_args import SECRETS, ServerArgs
from jackfield.entrypoints.calls import Call
from jackfield.entrypoints.http.redaction import Redaction, one_line
from jackfield.managers.fields.sampling_params import FIELDS
from jackfield.managers.requests.req_state import ReqState, finish_type

LOGGER = "jackfield.requests"

PARTIAL_CHARS = 2048
"""Of the request, and of each answer, at level 2."""

MOST_LISTED = 16
"""Answers of one call that are told one by one."""

CLIENT_GONE = 499
"""The status of a request whose client went away before it had one; a number that proxies use for it."""

PARAMETERS = frozenset(FIELDS) | {
    "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "echo", "logprobs", "top_logprobs",
    "return_logprob", "logprob_start_len", "top_logprobs_num", "priority", "tenant", "deadline_s", "sampling_params",
    "continue_final_message", "chat_template_kwargs", "encoding_format", "dimensions", "tool_choice",
    "parallel_tool_calls", "reasoning_effort",
}  # fmt: skip
"""Fields of bodies that say how to answer and not what; of a field that is not here nothing is shown below level 2."""


@dataclass(kw_only=True)
class Ended:
    """One request that is over. Times in seconds. route: None: none was found. started_s: until the status was sent."""

    call_id: str
    method: str
    path: str
    client: str | None
    route: str | None
    status: int
    code: str | None
    client_gone: bool = False
    duration_s: float
    started_s: float | None
    body: Any = None
    calls: Sequence[Call] = field(default=())


class RequestLog:
    """write: is given each line, without its end; None: standard error."""

    def __init__(self, args: ServerArgs, write: Any = None) -> None:
        self._level = args.log_requests_level
        self._json = args.log_requests_format == "json"
        self._redaction = Redaction([getattr(args, name) for name in SECRETS])
        self._write = write or _to_stderr()

    @classmethod
    def of(cls, args: ServerArgs) -> RequestLog | None:
        """None: it is off."""
        return cls(args) if args.log_requests else None

    def tell(self, ended: Ended) -> None:
        self._write(self.line(ended))

    def line(self, ended: Ended) -> str:
        told: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "call_id": self._redaction.text(ended.call_id),
            "method": ended.method[:20],
            "path": self._redaction.text(ended.path)[:200],
            "route": ended.route,
            "client": ended.client,
            "status": ended.status or CLIENT_GONE,
            "code": ended.code,
            "client_gone": ended.client_gone or None,
            "duration_ms": _ms(ended.duration_s),
            "started_ms": None if ended.started_s is None else _ms(ended.started_s),
        }
        answers: list[dict[str, Any]] = []
        for call in ended.calls:
            # Under the call's lock: a client that went away has left a scheduler that still writes.
            answers.extend(call.read(lambda states: [self._answer(state) for state in states[:MOST_LISTED]]))
            told.update(_sums(call.states, told))
        if answers:
            told["requests"] = answers[:MOST_LISTED]
        if ended.body is not None:
            sent = _as_mapping(ended.body)
            level = self._level
            if sent.get("no_logs") is True:
                level = 0
                for answer in answers:
                    answer.pop("text", None)
            if level >= 1:
                told["parameters"] = self._redaction.value(
                    {name: value for name, value in sent.items() if name in PARAMETERS}, PARTIAL_CHARS
                )
            if level >= 2:
                told["body"] = self._redaction.value(sent, self._most)
        told = {name: value for name, value in told.items() if value is not None}
        if self._json:
            return one_line(told)
        return " ".join(["request", *(f"{name}={_written(value)}" for name, value in told.items())])

    @property
    def _most(self) -> int | None:
        return PARTIAL_CHARS if self._level == 2 else None

    def _answer(self, state: ReqState) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": self._redaction.text(state.label),
            "prompt_tokens": state.prompt_tokens,
            "cached_tokens": state.cached_tokens,
            "completion_tokens": len(state.output_ids),
            "finish": "none" if state.finish is None else finish_type(state.finish),
        }
        if state.finished_at is not None:
            told["e2e_ms"] = _ms(state.finished_at - state.received_at)
        if self._level >= 2:
            told["text"] = self._redaction.value(state.text, self._most)
        return told


def _sums(states: Sequence[ReqState], before: Mapping[str, Any]) -> dict[str, int]:
    prompts = [state for state in states if state.choice == 0]
    return {
        "prompt_tokens": before.get("prompt_tokens", 0) + sum(state.prompt_tokens for state in prompts),
        "cached_tokens": before.get("cached_tokens", 0) + sum(state.cached_tokens for state in prompts),
        "completion_tokens": before.get("completion_tokens", 0) + sum(len(state.output_ids) for state in states),
        "answers": before.get("answers", 0) + len(states),
    }


def _as_mapping(body: Any) -> Mapping[str, Any]:
    """What the client sent of a body's fields; nothing for a body that is no object."""
    if isinstance(body, BaseModel):
        return body.model_dump(exclude_unset=True)
    return body if isinstance(body, Mapping) else {}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _written(value: Any) -> str:
    """A number or a plain word as it is, all else as JSON."""
    if isinstance(value, str) and value and value.isascii() and value.replace("-", "").replace("_", "").isalnum():
        return value
    return one_line(value)


def _to_stderr() -> Any:
    # Of its own, so that JSON lines are JSON alone, and no other handler's form or level is in the way.
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    return lambda line: logger.info("%s", line)
