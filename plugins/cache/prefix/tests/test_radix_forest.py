"""`RadixCache.forest`: what a policy sees of the tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.hookspecs import CacheKey, PrefixCache, PrefixForest
from jackfield.testing.page_cache import PageCache
from jackfield_cache_prefix.radix_cache import RadixCache


def key(tokens: list[int] | str, namespace: bytes = b"", marks: tuple[tuple[int, bytes], ...] = ()) -> CacheKey:
    ids = [ord(letter) for letter in tokens] if isinstance(tokens, str) else tokens
    return CacheKey(namespace=namespace, tokens=np.array(ids, dtype=np.int32), marks=marks)


def put(cache: PrefixCache, keys: list[CacheKey], first_slot: int = 16) -> None:
    """The cache holds these keys; no lease is left."""
    slot = first_slot
    for one in keys:
        lease = cache.acquire(one, len(one.tokens))
        slots = np.arange(slot, slot + len(one.tokens), dtype=np.int32)
        slots[: lease.length] = lease.slots[: lease.length]
        slot += len(one.tokens)
        cache.commit(lease, one, slots, final=True)
        cache.release(lease)


def shape(forest: PrefixForest) -> tuple[list[int], list[int], list[int], list[int]]:
    return forest.parent.tolist(), forest.weight.tolist(), forest.node.tolist(), forest.matched.tolist()


def test_an_empty_cache_and_no_keys() -> None:
    cache = RadixCache(page_size=1)
    assert shape(cache.forest([])) == ([], [], [], [])
    assert shape(cache.forest([key("ab")])) == ([], [], [-1], [0])


def test_branches_partial_matches_and_strangers() -> None:
    cache = RadixCache(page_size=1)
    put(cache, [key("common-left"), key("common-right"), key("other")])
    asked = [key("common-right!"), key("zzz"), key("common-le"), key("com"), key("common-"), key("common-rixx")]
    # nodes in the order in which the keys pass them: "common-", "right", "left"
    assert shape(cache.forest(asked)) == ([-1, 0, 0], [5, 2, 1], [1, -1, 2, 0, 0, 1], [12, 0, 9, 3, 7, 9])


def test_namespaces_and_media_are_apart() -> None:
    cache = RadixCache(page_size=2)
    put(cache, [key("aabb", b"1"), key("aabb", b"2"), key("ppqq", b"1", ((1, b"cat"),))])
    asked = [
        key("aab", b"1"),
        key("aabb", b"2"),
        key("aabb", b"3"),
        key("ppqq", b"1"),
        key("ppqq", b"1", ((1, b"cat"),)),
    ]
    assert shape(cache.forest(asked)) == ([-1, -1, -1], [1, 1, 1], [0, 1, -1, -1, 2], [2, 4, 0, 0, 4])


def test_it_changes_nothing_and_gives_read_only_arrays() -> None:
    cache = RadixCache(page_size=1)
    put(cache, [key("abcdef")])
    asked = [key("abcxyz")]
    before = (cache.sizes(), len(list(cache.tree.nodes())), list(cache.tree.roots))
    forest = cache.forest([*asked, key("a", b"unknown namespace")])
    assert (cache.sizes(), len(list(cache.tree.nodes())), list(cache.tree.roots)) == before
    cache.check()
    for array in (forest.parent, forest.weight, forest.node, forest.matched):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(st.lists(tokens, max_size=8), st.lists(tokens, max_size=8), st.sampled_from([1, 2, 4]))
def test_it_agrees_with_a_twin_that_has_one_node_a_page(
    held: list[list[int]], asked: list[list[int]], page_size: int
) -> None:
    """The twin's nodes are pages, so shapes differ; what a policy may ask of them does not: lengths, and how many keys
    share how long a prefix."""
    caches: list[PrefixCache] = [RadixCache(page_size=page_size), PageCache(page_size)]
    keys = [key(one) for one in asked]
    forests = []
    for cache in caches:
        put(cache, [key(one) for one in held])
        forests.append(cache.forest(keys))
    for cache, forest in zip(caches, forests, strict=True):
        assert forest.matched.tolist() == cache.peek(keys).tolist()
        assert (forest.parent < np.arange(len(forest.parent))).all()
        assert forest.weight[forest.parent == -1].sum() == np.count_nonzero(forest.node >= 0)
        assert (forest.weight > 0).all()
    shared = [[[_shared(forest, i, j) for j in range(len(keys))] for i in range(len(keys))] for forest in forests]
    assert shared[0] == shared[1]


def _shared(forest: PrefixForest, i: int, j: int) -> bool:
    """Whether the two keys' paths begin with the same node."""
    return forest.node[i] >= 0 and forest.node[j] >= 0 and _top(forest, i) == _top(forest, j)


def _top(forest: PrefixForest, i: int) -> int:
    at = int(forest.node[i])
    while forest.parent[at] >= 0:
        at = int(forest.parent[at])
    return at
