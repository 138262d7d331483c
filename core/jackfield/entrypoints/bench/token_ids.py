"""Fixed pseudo-random token ids, so that every engine and every run is asked for the same.

The rule, for whoever measures something else with the same prompts: a linear congruential generator of 31 bits with factor
1103515245 and increment 12345, started at seed * 2654435761 + 12345; of each state the bits above the lowest eight, modulo the
size of the range [low, high), above `low`.
"""

from __future__ import annotations

LOW, HIGH = 1000, 45000
"""Ordinary tokens of most vocabularies: special ones stand at either end."""

SMALL_LOW = 3
"""Where the vocabulary does not reach to HIGH, all ids from here on are taken."""

_MASK = 0x7FFFFFFF


def token_ids(count: int, seed: int, vocab_size: int = HIGH) -> list[int]:
    """`count` ids below `vocab_size`; other seeds give others, which share no beginning."""
    low, high = (LOW, HIGH) if vocab_size >= HIGH else (min(SMALL_LOW, vocab_size - 1), vocab_size)
    state = (seed * 2654435761 + 12345) & _MASK
    found = []
    for _ in range(count):
        state = (state * 1103515245 + 12345) & _MASK
        found.append(low + (state >> 8) % (high - low))
    return found
