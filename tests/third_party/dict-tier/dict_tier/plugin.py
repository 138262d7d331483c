"""KV tier `dict`."""

from __future__ import annotations

from dict_tier.options import DictOptions
from jackfield.hookspecs import KVTier, KVTierContext, TierRule, TierUse, hookimpl


class DictTier(KVTier):
    def __init__(self, options: DictOptions, block_bytes: int) -> None:
        self.rule = TierRule(write="through", min_load_tokens=options.min_load_tokens)
        self._most = options.most_blocks
        self._block_bytes = block_bytes
        self._blocks: dict[bytes, bytes] = {}

    def has(self, key: bytes) -> bool:
        return key in self._blocks

    def get(self, key: bytes) -> bytes | None:
        return self._blocks.get(key)

    def put(self, key: bytes, block: bytes) -> None:
        self._blocks[key] = block
        while len(self._blocks) > self._most:
            del self._blocks[next(iter(self._blocks))]

    def clear(self) -> None:
        self._blocks.clear()

    def use(self) -> TierUse:
        blocks = len(self._blocks)
        return TierUse(blocks=blocks, bytes=blocks * self._block_bytes, capacity=self._most * self._block_bytes)


@hookimpl
def jackfield_kv_tier(context: KVTierContext) -> KVTier:
    if not isinstance(context.options, DictOptions):
        raise TypeError(f"options of another plugin: {context.options!r}")
    return DictTier(context.options, context.block_bytes)
