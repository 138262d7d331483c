"""A request's `session_params`: from what a client sent to checked values, or one clear refusal. Knows no session."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.managers.errors import RequestError, shown
from jackfield.managers.fields.checks import refused


@dataclass(frozen=True, kw_only=True)
class SessionParams:
    """How a turn goes on from what its session holds.

    id       the session
    rid      the turn to continue from; None: the latest one
    offset   so many tokens of that turn's context are kept, at least 1; None: all (SGLang's -1)
    replace  forget the turns that follow that one; without a rid, all turns, and begin anew
    drop_previous_output   continue from that turn's prompt, without its answer
    """

    id: str
    rid: str | None = None
    offset: int | None = None
    replace: bool = False
    drop_previous_output: bool = False


_FIELDS = ("id", "rid", "offset", "replace", "drop_previous_output")


def session_params(given: Any) -> SessionParams:
    """Raises RequestError naming the field."""
    if not isinstance(given, Mapping):
        raise refused("session_params", "an object", given)
    for name in given:
        if name not in _FIELDS:
            raise RequestError(
                f"session_params has no field {shown(name)}; its fields are {', '.join(_FIELDS)}",
                param="session_params",
            )
    sent = {name: value for name, value in given.items() if value is not None}
    if "id" not in sent:
        raise RequestError("session_params.id is missing: it names the session", param="session_params.id")
    for name in ("id", "rid"):
        if name in sent and not isinstance(sent[name], str):
            raise refused(f"session_params.{name}", "a text", sent[name])
    for name in ("replace", "drop_previous_output"):
        if name in sent and not isinstance(sent[name], bool):
            raise refused(f"session_params.{name}", "true or false", sent[name])
    # SGLang's clients send an offset of -1 and a false with everything.
    offset = _offset(sent.get("offset"))
    cuts = offset is not None or sent.get("drop_previous_output", False)
    if sent.get("replace", False) and "rid" not in sent and cuts:
        raise RequestError(
            "session_params.replace without a rid begins anew: offset and drop_previous_output have nothing to cut",
            param="session_params.replace",
        )
    return SessionParams(
        id=sent["id"],
        rid=sent.get("rid"),
        offset=offset,
        replace=sent.get("replace", False),
        drop_previous_output=sent.get("drop_previous_output", False),
    )


def _offset(value: Any) -> int | None:
    if value is None:
        return None
    whole = not isinstance(value, bool) and isinstance(value, numbers.Integral)
    # 0 is refused: taken at its word it would keep nothing, and SGLang takes it for "append".
    if not whole or not (int(value) == -1 or int(value) >= 1):
        raise refused("session_params.offset", "a number of tokens from 1, or -1 for all", value)
    return None if int(value) == -1 else int(value)
