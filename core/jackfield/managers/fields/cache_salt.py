"""The cache salt and the extra key of a request: checked here, hashed into the cache's namespace by the scheduler. Prompts
share cached prefixes only where both are the same.

With a salt nobody learns from latency what somebody else has asked. It is the client's secret: it stands in no message, log
line or event. An extra key, SGLang's `extra_key`, only divides the cache, and is treated as discreetly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import for_each
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.text.tokenizer import check_unicode


def cache_salts(given: Any, count: int, limits: RequestLimits = DEFAULT_LIMITS) -> Sequence[str | None]:
    """The salt of each of `count` prompts: one text for all of them, or a list with one for each; None, alone or in a list,
    is no salt. Raises RequestError, which never repeats a salt."""
    return _texts("cache_salt", given, count, limits)


def extra_keys(given: Any, count: int, limits: RequestLimits = DEFAULT_LIMITS) -> Sequence[str | None]:
    """The extra key of each of `count` prompts, likewise."""
    return _texts("extra_key", given, count, limits)


def _texts(name: str, given: Any, count: int, limits: RequestLimits) -> Sequence[str | None]:
    return [_checked(name, text, limits.max_cache_salt_length) for text in for_each(name, given, count)]


def _checked(name: str, text: Any, most: int) -> str | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise RequestError(f"{name} must be a text, not {type(text).__name__}", param=name)
    if not 1 <= len(text) <= most:
        # An empty one is refused rather than taken for none: its sender believes that it keeps others out.
        raise RequestError(f"{name} has 1 to {most} characters, not {len(text)} (--max-cache-salt-length)", param=name)
    check_unicode(text, name)
    return text
