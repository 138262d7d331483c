"""How launches are cut, on the host: every new token is in one tile, and the splits reach as far as any tile looks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield_attention_triton.launch_shapes import LaunchShape, batch_launches, graph_launch
from jackfield_attention_triton.layers import LayerKind
from jackfield_attention_triton.tiles import spans
from jackfield_attention_triton.tuning import tuning_for

GPU = tuning_for((9, 0), 132, 128, 2, 64)


def kind(num_heads: int = 32, num_kv_heads: int = 8, window: int = 0, causal: bool = True) -> LayerKind:
    return LayerKind(
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=128, v_head_size=128, window=window, causal=causal
    )


def reach(shape: LaunchShape, seen: np.ndarray) -> int:
    """Keys that the shape's splits hold, where each is as long as `split_length_kernel` finds it."""
    assert shape.cut is not None
    keys, cut = shape.blocks.keys, shape.cut
    length = max(-(-int(seen.sum()) // cut.budget), cut.least, -(-int(seen.max()) // cut.count))
    return -(-length // keys) * keys * cut.count


@given(
    lengths=st.lists(
        st.tuples(st.integers(0, 3000), st.sampled_from([1, 1, 1, 0, 2, 9, 600])), min_size=1, max_size=40
    ),
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
    for shape in batch_launches(layers, tuning, q_lens, kv_lens, tree=tree):
        assert shape.queries * shape.tile_heads <= shape.blocks.lines
        tiles = shape.tiles
        for item, first in zip(tiles.items.tolist(), tiles.first.tolist(), strict=True):
            found += [(item, first + i) for i in range(min(shape.queries, int(q_lens[item]) - first))]
        seen = spans(tiles, q_lens, kv_lens, shape.queries, layers, shape.causal)
        assert seen.min() >= 1
        if shape.cut is not None:
            assert 1 < shape.cut.count <= 64
            assert reach(shape, seen) >= seen.max()
    assert sorted(found) == [(item, i) for item, new in enumerate(q_lens) for i in range(new)]


def test_a_full_gpu_needs_no_splits_and_a_lone_long_request_many() -> None:
    def cut(rows: int, kv_len: int) -> int:
        ones = np.ones(rows, dtype=np.int32)
        (shape,) = batch_launches(kind(), GPU, ones, ones * kv_len, tree=False)
        return 1 if shape.cut is None else shape.cut.count

    assert cut(256, 4096) == 1
    assert cut(1, 100) == 1
    assert cut(1, 8192) == 64
    assert 2 <= cut(64, 4096) <= 8


def test_uneven_batches_start_no_more_than_some_programs_in_vain() -> None:
    ones = np.ones(256, dtype=np.int32)
    lengths = ones * 500
    lengths[7] = 131072
    (shape,) = batch_launches(kind(), GPU, ones, lengths, tree=False)
    assert shape.cut is not None
    assert shape.cut.count * 256 * 8 <= 8 * GPU.programs


def test_one_long_chunk_is_not_cut_but_a_tree_over_a_long_prefix_is() -> None:
    (chunk,) = batch_launches(kind(), GPU, np.array([8192], np.int32), np.array([8192], np.int32), tree=False)
    assert chunk.cut is None
    (tree,) = batch_launches(kind(), GPU, np.array([8], np.int32), np.array([30000], np.int32), tree=True)
    assert tree.cut is not None
    assert tree.blocks.lines == 32  # 8 tokens times 4 heads


@pytest.mark.parametrize("window", [0, 128, 4096])
@pytest.mark.parametrize("rows", [1, 3, 64, 512])
def test_a_graph_has_splits_for_all_lengths_that_may_come(rows: int, window: int) -> None:
    layers = kind(window=window)
    shape = graph_launch(layers, GPU, rows, max_kv=32768)
    for kv_len in (1, 129, 5000, 32768):
        lengths = np.ones(rows, dtype=np.int32)
        lengths[-1] = kv_len
        seen = spans(shape.tiles, np.ones(rows, dtype=np.int32), lengths, 1, layers, True)
        if shape.cut is not None:
            assert reach(shape, seen) >= seen.max()
    assert shape.tiles.every
    assert (shape.cut is None) == (window == 128)


def test_rows_without_new_tokens_need_no_launch() -> None:
    assert batch_launches(kind(), GPU, np.zeros(2, np.int32), np.array([0, 9], np.int32), tree=False) == []


@pytest.mark.parametrize(("capability", "itemsize", "lines"), [((9, 0), 2, 64), ((8, 0), 4, 32), ((8, 9), 4, 16)])
def test_many_query_heads_of_a_kv_head_are_cut_to_what_a_program_holds(
    capability: tuple[int, int], itemsize: int, lines: int
) -> None:
    layers = LayerKind(num_heads=60, num_kv_heads=1, head_size=512, v_head_size=512, window=0, causal=True)
    shape = graph_launch(layers, tuning_for(capability, 132, 512, itemsize, 64), 8, max_kv=100)
    assert (shape.blocks.lines, shape.tile_heads) == (lines, min(lines, 60))


def test_no_splits_where_the_option_says_so() -> None:
    tuning = tuning_for((9, 0), 132, 128, 2, 1)
    assert graph_launch(kind(), tuning, 1, 32768).cut is None
