"""Shares of ranks: complete, disjoint, in order; and parts that refuse what cannot be shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.hookspecs import Shard
from jackfield.layers.shards import even_share, kv_head_share, scaled, vocab_share

SIZES = st.integers(1, 16)


@given(st.integers(1, 1000), SIZES)
def test_vocabulary_shares_cover_every_id_once(vocab_size: int, size: int) -> None:
    spans = [vocab_share(vocab_size, Shard(tp_rank=rank, tp_size=size)) for rank in range(size)]
    assert [i for first, last in spans for i in range(first, last)] == list(range(vocab_size))


@given(st.integers(1, 64), SIZES)
def test_even_shares_cover_everything_once(each: int, size: int) -> None:
    spans = [even_share(each * size, Shard(tp_rank=rank, tp_size=size), "heads") for rank in range(size)]
    assert [i for first, last in spans for i in range(first, last)] == list(range(each * size))


@given(st.integers(1, 8), SIZES, st.booleans())
def test_kv_heads_go_with_their_query_heads(each: int, size: int, fewer: bool) -> None:
    """Every query head finds the KV head it belongs to on its own rank."""
    kv_heads, ranks = (size, size * each) if fewer else (size * each, size)
    heads = kv_heads * ranks  # divisible by both
    for rank in range(ranks):
        shard = Shard(tp_rank=rank, tp_size=ranks)
        first, last = even_share(heads, shard, "heads")
        needed = {head * kv_heads // heads for head in range(first, last)}
        held = range(*kv_head_share(kv_heads, shard))
        assert needed == set(held)


def test_what_cannot_be_shared_is_named() -> None:
    with pytest.raises(ValueError, match=r"attention heads: 9 .* 2"):
        even_share(9, Shard(tp_size=2), "attention heads")
    with pytest.raises(ValueError, match=r"key/value heads: 2 .* 3"):
        kv_head_share(2, Shard(tp_size=3))


def test_heads_to_rows() -> None:
    assert scaled((2, 5), 64) == (128, 320)
