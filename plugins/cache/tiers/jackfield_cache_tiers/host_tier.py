"""Blocks in this process's memory."""

from __future__ import annotations

from jackfield.hookspecs import KVTier, TierUse
from jackfield_cache_tiers.lru import LruIndex
from jackfield_cache_tiers.options import HostOptions


class HostTier(KVTier):
    def __init__(self, options: HostOptions) -> None:
        self.rule = options.rule()
        self._index = LruIndex(options.size_mib * 2**20)
        self._blocks: dict[bytes, bytes] = {}

    def has(self, key: bytes) -> bool:
        return key in self._index

    def get(self, key: bytes) -> bytes | None:
        self._index.touch(key)
        return self._blocks.get(key)

    def put(self, key: bytes, block: bytes) -> None:
        self._blocks[key] = block
        for gone in self._index.add(key, len(block)):
            del self._blocks[gone]

    def clear(self) -> None:
        self._index.clear()
        self._blocks.clear()

    def use(self) -> TierUse:
        return self._index.use()

    def close(self) -> None:
        self.clear()
