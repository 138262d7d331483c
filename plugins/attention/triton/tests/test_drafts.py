"""How launches are cut, on the host: every new token is in one tile, and the splits reach as far as any tile looks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield_attention_triton.drafts import Draft, batch_drafts, graph_draft
from jackfield_attention_triton.layers import LayerKind
from jackfield_attention_triton.tiles import spans
from jackfield_attention_triton.tuning import tuning_for

GPU = tuning_for((9, 0), 132, 128, 2, 64)


def kind(num_heads: int = 32, num_kv_heads: int = 8, window: int = 0, causal: bool = True) -> LayerKind:
    return LayerKind(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=128, v_head_size=128, window=window, causal=causal
    )


def reach(draft: Draft, seen: np.ndarray) -> int:
    """Keys that the draft's splits hold, where each is as long as `split_length_kernel` finds it."""
    assert draft.cut is not None
    keys, cut = draft.blocks.keys, draft.cut
    length = max(-(-int(seen.sum()) // cut.budget), cut.least, -(-int(seen.max()) // cut.count))
    return -(-length // keys) * keys * cut.count


@given(
    lengths=st.lists(st.tuples(st.integers(0, 3000), st.sampled_from([1, 1, 1, 2, 9, 600])), min_size=1, max_size=40),
    heads=st.sampled_from([(32, 8), (8, 8), (9, 3), (260, 1), (1, 1)]),
    window=st.sampled_from([0, 1, 100]),
    causal=st.booleans(),
    tree=st.booleans(),
    capability=st.sampled_from([None, (8, 0), (9, 0), (12, 0)]),
)
def test_each_new_token_is_in_one_tile_and_splits_reach_every_key(
    lengths: list[tuple[int, int]],
    heads: tuple[int, int],
    window: int,
    causal: bool,
    tree: bool,
    capability: tuple[int, int] | None,
) -> None:
    q_lens = np.array([new for _, new in lengths], dtype=np.int32)
    kv_lens = np.array([cached + new for cached, new in lengths], dtype=np.int32)
    layers = kind(*heads, window=window, causal=causal)
    tuning = tuning_for(capability, 132, 128, 2, 64)
    found: list[tuple[int, int]] = []
    for draft in batch_drafts(layers, tuning, q_lens, kv_lens, tree=tree):
        assert draft.queries * draft.tile_heads <= draft.blocks.lines
        tiles = draft.tiles
        for item, first in zip(tiles.items.tolist(), tiles.first.tolist(), strict=True):
            found += [(item, first + i) for i in range(min(draft.queries, int(q_lens[item]) - first))]
        seen = spans(tiles, q_lens, kv_lens, draft.queries, layers, draft.causal)
        assert seen.min() >= 1
        if draft.cut is not None:
            assert 1 < draft.cut.count <= 64
            assert reach(draft, seen) >= seen.max()
    assert sorted(found) == [(item, i) for item, new in enumerate(q_lens) for i in range(new)]


def test_a_full_gpu_needs_no_splits_and_a_lone_long_request_many() -> None:
    def cut(rows: int, kv_len: int) -> int:
        ones = np.ones(rows, dtype=np.int32)
        (draft,) = batch_drafts(kind(), GPU, ones, ones * kv_len, tree=False)
        return 1 if draft.cut is None else draft.cut.count

    assert cut(256, 4096) == 1
    assert cut(1, 100) == 1
    assert cut(1, 8192) == 64
    assert 2 <= cut(64, 4096) <= 8


def test_uneven_batches_start_no_more_than_some_programs_in_vain() -> None:
    ones = np.ones(256, dtype=np.int32)
    lengths = ones * 500
    lengths[7] = 131072
    (draft,) = batch_drafts(kind(), GPU, ones, lengths, tree=False)
    assert draft.cut is not None
    assert draft.cut.count * 256 * 8 <= 8 * GPU.programs


def test_one_long_chunk_is_not_cut_but_a_tree_over_a_long_prefix_is() -> None:
    (chunk,) = batch_drafts(kind(), GPU, np.array([8192], np.int32), np.array([8192], np.int32), tree=False)
    assert chunk.cut is None
    (tree,) = batch_drafts(kind(), GPU, np.array([8], np.int32), np.array([30000], np.int32), tree=True)
    assert tree.cut is not None
    assert tree.blocks.lines == 32  # 8 tokens times 4 heads


@pytest.mark.parametrize("window", [0, 128, 4096])
@pytest.mark.parametrize("rows", [1, 3, 64, 512])
def test_a_graph_has_splits_for_all_lengths_that_may_come(rows: int, window: int) -> None:
    layers = kind(window=window)
    draft = graph_draft(layers, GPU, rows, max_kv=32768)
    for kv_len in (1, 129, 5000, 32768):
        lengths = np.ones(rows, dtype=np.int32)
        lengths[-1] = kv_len
        seen = spans(draft.tiles, np.ones(rows, dtype=np.int32), lengths, 1, layers, True)
        if draft.cut is not None:
            assert reach(draft, seen) >= seen.max()
    assert draft.tiles.every
    assert (draft.cut is None) == (window == 128)


def test_no_splits_where_the_option_says_so() -> None:
    tuning = tuning_for((9, 0), 132, 128, 2, 1)
    assert graph_draft(kind(), tuning, 1, 32768).cut is None
