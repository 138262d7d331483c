"""KV tiers with one fault each, on top of a dict."""

from __future__ import annotations

import os
from typing import Any

from jackfield.hookspecs import KVTier, TierUse, hookimpl

CAUGHT = {
    "good": (),
    "one-block-for-all": ("what_was_put_comes_back", "*"),
    "counts-puts": ("a_key_is_put_again", "it_never_holds_more_than_it_may"),
    "cuts-large-blocks": ("blocks_of_the_run_s_size", "it_never_holds_more_than_it_may"),
    "no-limit": ("it_never_holds_more_than_it_may",),
    "wears-out": ("against_a_dict", "two_threads"),
    "clears-half": ("clear_and_use",),
    "rule-in-words": ("its_rule_is_one",),
    "looks-at-the-disk": ("has_and_use_do_no_io",),
    "others-blocks": ("a_second_run",),
}
CAPACITY = 2**22


class Good(KVTier):
    def __init__(self) -> None:
        self.blocks: dict[bytes, bytes] = {}
        self.bytes = 0

    def has(self, key: bytes) -> bool:
        return key in self.blocks

    def get(self, key: bytes) -> bytes | None:
        return self.blocks.get(key)

    def put(self, key: bytes, block: bytes) -> None:
        if key not in self.blocks:
            while self.bytes + len(block) > CAPACITY:
                self.bytes -= len(self.blocks.pop(next(iter(self.blocks))))
            self.blocks[key] = block
            self.bytes += len(block)

    def clear(self) -> None:
        self.blocks.clear()
        self.bytes = 0

    def use(self) -> TierUse:
        return TierUse(blocks=len(self.blocks), bytes=self.bytes, capacity=CAPACITY)


class OneBlockForAll(Good):
    def get(self, key: bytes) -> bytes | None:
        return next(iter(self.blocks.values()), None)


class CountsPuts(Good):
    puts = 0

    def put(self, key: bytes, block: bytes) -> None:
        super().put(key, block)
        self.puts += 1

    def use(self) -> TierUse:
        return TierUse(blocks=self.puts, bytes=self.bytes, capacity=CAPACITY)


class CutsLargeBlocks(Good):
    def put(self, key: bytes, block: bytes) -> None:
        super().put(key, block[: 2**16])


class NoLimit(Good):
    def put(self, key: bytes, block: bytes) -> None:
        self.bytes += len(block) if key not in self.blocks else 0
        self.blocks[key] = block


class WearsOut(Good):
    gets = 0

    def get(self, key: bytes) -> bytes | None:
        self.gets += 1
        found = super().get(key)
        return found if found is None or self.gets < 100 else found[::-1]


class ClearsHalf(Good):
    def clear(self) -> None:
        for key in list(self.blocks)[::2]:
            self.bytes -= len(self.blocks.pop(key))


class RuleInWords(Good):
    rule: Any = "through"


class LooksAtTheDisk(Good):
    def has(self, key: bytes) -> bool:
        return super().has(key) and os.path.exists("/")


class OthersBlocks(Good):
    kept: dict[bytes, bytes] = {}  # noqa: RUF012  the fault

    def __init__(self) -> None:
        super().__init__()
        if len(self.kept) == 4:
            self.blocks = dict.fromkeys(self.kept, b"x" * 256)
        self.kept.clear()

    def close(self) -> None:
        self.kept.update(self.blocks)


@hookimpl
def jackfield_kv_tier(context: Any) -> KVTier:
    made: KVTier = globals()[context.name.replace("-", " ").title().replace(" ", "")]()
    return made
