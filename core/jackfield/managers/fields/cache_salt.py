"""The cache salt of a request: checked here, hashed into the cache's namespace by the scheduler. Prompts share cached
prefixes only under the same salt, so that nobody learns from latency what somebody else has asked.

A salt is the client's secret: it stands in no message, log line or event.
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
    return [_checked(salt, limits.max_cache_salt_length) for salt in for_each("cache_salt", given, count)]


def _checked(salt: Any, most: int) -> str | None:
    if salt is None:
        return None
    if not isinstance(salt, str):
        raise RequestError(f"cache_salt must be a text, not {type(salt).__name__}", param="cache_salt")
    if not 1 <= len(salt) <= most:
        # An empty one is refused rather than taken for none: its sender believes that it keeps others out.
        raise RequestError(
            f"cache_salt has 1 to {most} characters, not {len(salt)} (--max-cache-salt-length)", param="cache_salt"
        )
    check_unicode(salt, "cache_salt")
    return salt
