"""The one error of a refused configuration, and the help that goes with a misspelt name.

Knows nothing of what is configured; every part of the core that refuses something uses it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

LIST_AT_MOST = 16
"""So many valid names are written out when none is near; more would bury the message."""

LEAST_LIKENESS = 0.6
"""Ratio of matching characters from which a name may be meant (difflib's own default)."""


class ConfigurationError(Exception):
    """A configuration that cannot be used: the start stops with exit code 2 and this one message.

    The text says what is wrong, where it came from, and what would be valid.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def nearest(name: str, choices: Iterable[str], *, most: int = 3) -> list[str]:
    """The choices that `name` was most likely meant to be, best first, at most `most`; possibly none.

    Case, dashes and underscores do not count. Besides misspellings it finds whole words of a longer name, in either
    direction ("--cache" for "--cache-policy").
    """
    folded: dict[str, str] = {}
    for choice in choices:
        folded.setdefault(_fold(choice), choice)
    wanted = _fold(name)
    if not wanted:
        return []
    scores = {key: difflib.SequenceMatcher(None, key, wanted).ratio() for key in folded}
    best = max(scores.values(), default=0.0)
    # Close behind a very good match there is only noise.
    least = max(LEAST_LIKENESS, best - 0.1 if best > 0.8 else 0.0)
    found = sorted((key for key in folded if scores[key] >= least), key=lambda key: (-scores[key], key))
    words = set(wanted.split("-"))
    for key in sorted(folded, key=lambda key: (len(key), key)):
        theirs = set(key.split("-"))
        if key not in found and best < 0.8 and (words <= theirs or theirs <= words or key.startswith(wanted)):
            found.append(key)
    return [folded[key] for key in found[:most]]


def did_you_mean(name: str, choices: Iterable[str], *, noun: str = "valid") -> str:
    """The end of an error message, with its leading punctuation: "; did you mean 'a' or 'b'?", else the valid names."""
    known = list(dict.fromkeys(choices))
    near = nearest(name, known)
    if near:
        return f"; did you mean {either(repr(choice) for choice in near)}?"
    if not known:
        return f"; there is nothing {noun} here"
    if len(known) <= LIST_AT_MOST:
        return f"; {noun}: {', '.join(known)}"
    return ""


def either(words: Iterable[str]) -> str:
    """ "a", "a or b", "a, b or c"."""
    listed = list(words)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} or {listed[-1]}"


def refuse(problems: Sequence[str]) -> ConfigurationError:
    """One error for one or several problems, so that a user mends all of them in one round."""
    if len(problems) == 1:
        return ConfigurationError(problems[0])
    lines = "".join(f"\n  - {problem}" for problem in problems)
    return ConfigurationError(f"{len(problems)} problems in the configuration:{lines}")


def _fold(name: str) -> str:
    return name.lower().replace("_", "-").strip("-")
