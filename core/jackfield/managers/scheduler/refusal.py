"""Who did not fit, remembered: a long prompt is not looked up in the cache again in every step in which nothing changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The last waiting request for which there was no memory. It holds until the cache changes or anybody is admitted.

    known    tokens of it that were looked up
    changes  `KVMemory.changes` then
    cached   tokens that the cache would have served
    locked   slots of them that nobody else held: they cannot be evicted for the request
    """

    uid: int
    known: int
    changes: int
    cached: int
    locked: int

    def lacking(self, uid: int, known: int, changes: int, *, need: int, promised: int, available: int) -> int:
        """Slots that it still lacks by what is known without a look-up; 0: it has to be looked up.

        need       slots for the whole request
        promised   to those who run
        available  free and evictable, with nothing locked for it
        """
        if (uid, known, changes) != (self.uid, self.known, self.changes):
            return 0
        return max(0, need - self.cached + promised - (available - self.locked))
