"""What of a request may be written down: secrets are taken out, and the rest is made harmless and as short as asked for.

Secrets are the run's keys wherever they turn up in what a client sent, and the values of fields that are somebody's secret by
their name. Knows no route and no log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"

SECRET_FIELDS = frozenset(
    {"cache_salt", "extra_key", "session_id", "session_params", "api_key", "authorization", "x-api-key"}
)
"""Whoever knows a salt or a session's id may learn or continue what was said under it."""

_SHORTEST_KEY = 4
"""A shorter key is no secret, and its letters are in every word."""


class Redaction:
    def __init__(self, keys: Sequence[str | None]) -> None:
        # The longest first: one may be a part of another.
        self._keys = sorted(
            (key for key in keys if key is not None and len(key) >= _SHORTEST_KEY), key=len, reverse=True
        )

    def text(self, text: str) -> str:
        """Without the run's keys."""
        for key in self._keys:
            text = text.replace(key, HIDDEN)
        return text

    def value(self, value: Any, most: int | None = None) -> Any:
        """A JSON value without secrets. most: about as many characters of it as are kept; None: all.

        Nested as deeply as bodies may be (--max-json-depth), so recursion has an end.
        """
        return self._shortened(value, _Budget(most))

    def _shortened(self, value: Any, budget: _Budget) -> Any:
        if isinstance(value, str):
            # Keys go before the cut, which could leave the most of one.
            clean = self.text(value)
            kept = budget.take(len(clean))
            return clean if kept == len(clean) else clean[:kept] + f"… ({len(value)} characters)"
        if isinstance(value, Mapping):
            made: dict[str, Any] = {}
            for key, inner in value.items():
                if not budget.take(1):
                    made["…"] = f"({len(value)} fields)"
                    break
                name = self.text(str(key))[:200]
                made[name] = HIDDEN if _is_secret(key) and inner is not None else self._shortened(inner, budget)
            return made
        if isinstance(value, list | tuple):
            listed: list[Any] = []
            for inner in value:
                if not budget.take(1):
                    listed.append(f"… ({len(value)} entries)")
                    break
                listed.append(self._shortened(inner, budget))
            return listed
        return value


class _Budget:
    def __init__(self, most: int | None) -> None:
        self._left = most

    def take(self, wanted: int) -> int:
        """As many as there are."""
        if self._left is None:
            return wanted
        given = min(wanted, self._left)
        self._left -= given
        return given


def _is_secret(name: Any) -> bool:
    return isinstance(name, str) and name.lower().replace("_", "-") in _SECRET_NAMES


_SECRET_NAMES = frozenset(name.replace("_", "-") for name in SECRET_FIELDS)


def one_line(value: Any) -> str:
    """JSON in ASCII: whatever a client wrote, it can neither end the line nor speak to a terminal."""
    return json.dumps(value, ensure_ascii=True, default=str)
