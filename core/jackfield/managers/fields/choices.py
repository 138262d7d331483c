"""Several answers to one prompt (`n`): how many were asked for, and what tells one from another. Knows numbers and names, no
tokens and no queue.

A prompt has at most --max-choices, a whole call at most --max-prompts-per-request answers.

The choices of a prompt are requests of their own. Where the prefix cache shares prompts, the scheduler holds the later ones
back until the first one's prompt is computed, so that it is computed once.
"""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import whole
from jackfield.managers.fields.limits import RequestLimits


def choices_asked(sampling: Sequence[Mapping[str, Any]], limits: RequestLimits) -> int:
    """The `n` of a call, the same for all of its prompts: the answers' numbers are i * n + j. sampling: one mapping a prompt.

    `best_of` may say the same number as `n`, or be absent: choosing among more than are returned is not offered.

    Raises RequestError before anything is made for any of them.
    """
    if not sampling:
        return 1
    counts = {choice_count("n", one.get("n"), limits.max_choices) or 1 for one in sampling}
    if len(counts) > 1:
        raise RequestError("n must be the same for all prompts of a call", param="n")
    n = counts.pop()
    for one in sampling:
        if (best_of := choice_count("best_of", one.get("best_of"), limits.max_choices)) is not None and best_of != n:
            raise RequestError(
                f"best_of is {best_of} and n is {n}; best_of must be absent or the same as n", param="best_of"
            )
    most_together = limits.max_prompts_per_request
    if n > 1 and n * len(sampling) > most_together:
        raise RequestError(
            f"n is {n} for {len(sampling)} prompts, which makes {n * len(sampling)} answers; at most {most_together} "
            "are allowed in one call (--max-prompts-per-request)",
            param="n",
        )
    return n


def asks_for_several(sampling: Any) -> bool:
    """Whether unchecked sampling parameters, of one prompt or of several, say an n above 1."""
    first = sampling[0] if isinstance(sampling, Sequence) and sampling else sampling
    n = first.get("n") if isinstance(first, Mapping) else None
    return not isinstance(n, bool) and isinstance(n, numbers.Integral) and int(n) > 1


def choice_seed(seed: int | None, choice: int) -> int | None:
    """The seed of a prompt's choice: the request's own for the first, so that it is the answer that n = 1 gives; for the
    others a number that depends on seed and choice alone. int64."""
    if seed is None or choice == 0:
        return seed
    mixed = hashlib.blake2b(f"{seed}/{choice}".encode(), digest_size=8).digest()
    return int.from_bytes(mixed, "little", signed=True)


def choice_label(label: str, choice: int, n: int) -> str:
    """The id of a choice: the client's own if it is the only one."""
    return label if n == 1 else f"{label}-{choice}"


def choice_count(name: str, value: Any, most: int) -> int | None:
    """The checked value of `n` or `best_of`; None is absent. Raises RequestError."""
    return None if value is None else whole(name, value, 1, most, "--max-choices")
