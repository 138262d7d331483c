"""The conformance suite of kind `kv_tier`: a store of bytes against a dict, its limits, and its two threads. Needs no torch."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from jackfield.hookspecs import KVTier, TierRule, TierUse
from jackfield.testing.conformance.guards import forbidden_acts
from jackfield.testing.conformance.suite import Conformance

SMALL = 256
LARGE = 2**18


def name(i: int) -> bytes:
    return i.to_bytes(32, "big")


def block(i: int, size: int = SMALL) -> bytes:
    return bytes([i % 251, i // 251 % 251]) * (size // 2)


class KvTierConformance(Conformance):
    kind = "kv_tier"

    def tier(self, block_bytes: int = SMALL) -> KVTier:
        made: KVTier = self.make(block_tokens=16, block_bytes=block_bytes)
        return made

    @pytest.fixture
    def small(self) -> Iterator[KVTier]:
        tier = self.tier()
        yield tier
        tier.close()

    def test_what_was_put_comes_back(self, small: KVTier) -> None:
        """`get` gives the bytes that were put under the key, and None for a key that was never put."""
        for i in range(3):
            small.put(name(i), block(i))
        for i in range(3):
            assert small.has(name(i)), "it has not what was just put, and there is room"
            assert small.get(name(i)) == block(i)
        assert not small.has(name(77))
        assert small.get(name(77)) is None

    def test_a_key_is_put_again(self, small: KVTier) -> None:
        """Equal keys mean equal bytes, so that a second `put` neither fails nor counts twice."""
        small.put(name(1), block(1))
        before = small.use()
        small.put(name(1), block(1))
        assert small.use() == before, f"{before} became {small.use()}"
        assert small.get(name(1)) == block(1)

    def test_blocks_of_the_run_s_size(self) -> None:
        """Blocks of a quarter of a mebibyte come back whole."""
        tier = self.tier(LARGE)
        tier.put(name(1), block(1, LARGE))
        found = tier.get(name(1))
        assert found is None or found == block(1, LARGE), "another block than was put"
        tier.close()

    def test_it_never_holds_more_than_it_may(self) -> None:
        """`use` counts what `has` finds, and stays within the capacity however much is put."""
        tier = self.tier(LARGE)
        most = max(8, min(200, 2 * tier.use().capacity // LARGE))
        for i in range(most):
            tier.put(name(i), block(i, LARGE))
            use = tier.use()
            assert isinstance(use, TierUse)
            assert 0 <= use.bytes <= use.capacity, f"{use} after {i + 1} blocks"
            assert use.blocks * LARGE <= use.bytes or not use.blocks, f"{use}: blocks of {LARGE} bytes"
        kept = [i for i in range(most) if tier.has(name(i))]
        assert len(kept) == tier.use().blocks, f"use counts {tier.use().blocks} blocks, has finds {len(kept)}"
        wrong = [i for i in kept if tier.get(name(i)) not in (None, block(i, LARGE))]
        assert not wrong, f"blocks {wrong} came back changed"
        self.measured(f"blocks kept of {most}", len(kept))
        tier.close()

    def test_against_a_dict(self, small: KVTier) -> None:
        """In any order of puts and gets, what comes back is what was put last, or nothing."""
        put: dict[bytes, bytes] = {}
        for i in range(300):
            key = name(i * 7919 % 40)
            if i % 3:
                found = small.get(key)
                assert found is None or found == put[key], "bytes that were never put under this key"
            else:
                put[key] = block(i * 7919 % 40)
                small.put(key, put[key])
        assert any(small.get(key) == data for key, data in put.items()), "it keeps nothing at all"

    def test_clear_and_use(self, small: KVTier) -> None:
        """After `clear` it has all or nothing of before, and goes on."""
        for i in range(4):
            small.put(name(i), block(i))
        small.clear()
        kept = sum(small.has(name(i)) for i in range(4))
        assert kept in (0, 4), f"{kept} of 4 blocks outlived a clear"
        assert small.use().blocks >= kept
        small.put(name(9), block(9))
        assert small.get(name(9)) == block(9)

    def test_its_rule_is_one(self, small: KVTier) -> None:
        """`rule` is a TierRule, and the same at every look."""
        assert isinstance(small.rule, TierRule)
        assert small.rule == small.rule

    def test_has_and_use_do_no_io(self, small: KVTier) -> None:
        """The scheduler's thread calls `has` and `use`: neither waits nor does I/O."""
        small.put(name(1), block(1))

        def asked() -> None:
            small.has(name(1))
            small.has(name(2))
            small.use()

        asked()
        acts = [act for act in forbidden_acts(asked) if act.startswith(("it waits", "it does I/O", "it starts"))]
        assert not acts, "; ".join(acts)

    def test_two_threads(self, small: KVTier) -> None:
        """`has` and `use` on one thread while another puts and gets: no error on either."""
        errors: list[BaseException] = []

        def write() -> None:
            try:
                for i in range(300):
                    small.put(name(i), block(i))
                    assert small.get(name(i)) in (None, block(i)), "another block than was put"
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        while thread.is_alive():
            for i in range(0, 300, 7):
                small.has(name(i))
            small.use()
        thread.join()
        if errors:
            raise errors[0]

    def test_a_second_run(self) -> None:
        """After `close`, a new one with the same options starts, and what it still has is right."""
        first = self.tier()
        for i in range(4):
            first.put(name(i), block(i))
        first.close()
        second = self.tier()
        kept = [i for i in range(4) if second.has(name(i))]
        assert all(second.get(name(i)) in (None, block(i)) for i in kept)
        self.measured("blocks of 4 that outlived a restart", len(kept))
        second.close()
