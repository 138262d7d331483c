"""What a prefix cache answers is looked at before it is believed."""

from __future__ import annotations

from typing import TypeVar

_Answer = TypeVar("_Answer")


class BadCacheAnswer(Exception):
    """A prefix cache returned something that its contract does not allow."""


def of_type(answer: object, wanted: type[_Answer], what: str) -> _Answer:
    if not isinstance(answer, wanted):
        raise BadCacheAnswer(f"{what} returned a {type(answer).__name__}, not a {wanted.__name__}")
    return answer
