"""A tier sees keys and bytes, so its tests need nothing else."""

from __future__ import annotations

import pytest
from dict_tier.options import DictOptions
from dict_tier.plugin import DictTier
from pydantic import ValidationError

from jackfield.hookspecs import TierUse


def test_what_was_put_is_there_until_newer_blocks_need_its_place() -> None:
    tier = DictTier(DictOptions(most_blocks=2), block_bytes=3)
    for key in (b"a", b"b", b"a", b"c"):
        tier.put(key, key * 3)
    assert [tier.has(key) for key in (b"a", b"b", b"c")] == [False, True, True]
    assert tier.get(b"b") == b"bbb"
    assert tier.get(b"a") is None
    assert tier.use() == TierUse(blocks=2, bytes=6, capacity=6)
    tier.clear()
    assert tier.use() == TierUse(blocks=0, bytes=0, capacity=6)


def test_its_rule_is_what_the_options_say() -> None:
    assert DictTier(DictOptions(min_load_tokens=32), 1).rule.min_load_tokens == 32
    with pytest.raises(ValidationError):
        DictOptions.model_validate({"most_block": 1})
