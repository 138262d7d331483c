"""A script: the exact tokens that each request answers. It knows request numbers, not rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

FIRST_UID = 1
"""The scheduler numbers its requests from 1."""


class Script:
    """Request number u plays entry (u - 1) modulo the number of entries, then the end token for ever."""

    def __init__(self, entries: Sequence[NDArray[np.int32]], end_id: int) -> None:
        self._entries = entries
        self._end_id = end_id

    def token(self, uid: int, index: int) -> int:
        """The request's output token number `index`, from 0."""
        entry = self._entries[(uid - FIRST_UID) % len(self._entries)]
        return int(entry[index]) if index < len(entry) else self._end_id


def make_script(
    script: str | list[str | list[int]],
    *,
    encode: Callable[[str], list[int]] | None,
    eos_ids: tuple[int, ...],
    vocab_size: int,
) -> Script:
    """Raises ValueError with what the operator can change."""
    parts = [script] if isinstance(script, str) else script
    if not parts:
        raise ValueError("option script: the list is empty; leave the option out to have no script")
    if not eos_ids:
        raise ValueError("option script: the model names no end token, so the script could not end")
    entries = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            if encode is None:
                raise ValueError(f"option script: entry {number} is a text, but this run has no tokenizer; give ids")
            part = encode(part)
        wrong = [token for token in part if not 0 <= token < vocab_size]
        if wrong:
            raise ValueError(f"option script: entry {number} has id {wrong[0]}; ids go from 0 to {vocab_size - 1}")
        entries.append(np.array(part, dtype=np.int32))
    return Script(entries, eos_ids[0])
