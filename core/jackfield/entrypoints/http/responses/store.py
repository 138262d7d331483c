"""Responses that are kept for later: bounded in number and bytes, the longest unused is forgotten first. Knows no route.

What one API key stored, another cannot find: for it the response does not exist.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


@dataclass(kw_only=True)
class Stored:
    """owner      whose it is, see `owner_of`
    response   the response object, replaced when it changes
    messages   the conversation before its output, without instructions
    busy       it is still being written, and not forgotten until then
    task       that which writes it in the background
    """

    owner: bytes
    response: dict[str, Any]
    messages: list[dict[str, Any]]
    busy: bool = False
    task: asyncio.Task[None] | None = None
    nbytes: int = field(default=0, init=False)


class ResponseStore:
    """Used on the event loop's thread only. entries, nbytes: at most."""

    def __init__(self, entries: int, nbytes: int) -> None:
        self._most_entries = entries
        self._most_bytes = nbytes
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, stored: Stored) -> bool:
        """Keep it, new or changed. False: it is larger than the store, or all that is older is still being written."""
        name = stored.response["id"]
        self._remove(name)
        stored.nbytes = len(_encode(stored.response)) + len(_encode(stored.messages))
        if stored.nbytes > self._most_bytes:
            return False
        while len(self._kept) >= self._most_entries or self.nbytes + stored.nbytes > self._most_bytes:
            oldest = next((key for key, one in self._kept.items() if not one.busy), None)
            if oldest is None:
                return False
            self._remove(oldest)
        self._kept[name] = stored
        self.nbytes += stored.nbytes
        return True

    def get(self, name: str, owner: bytes) -> Stored | None:
        stored = self._kept.get(name)
        if stored is None or stored.owner != owner:
            return None
        self._kept.move_to_end(name)
        return stored

    def delete(self, name: str, owner: bytes) -> Stored | None:
        stored = self.get(name, owner)
        if stored is not None:
            self._remove(name)
        return stored

    def _remove(self, name: str) -> None:
        stored = self._kept.pop(name, None)
        if stored is not None:
            self.nbytes -= stored.nbytes
