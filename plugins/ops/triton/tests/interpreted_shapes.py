"""Random shapes, numbers and draws in Triton's interpreter. Run in the same process as `interpreted.py`; the examples are the
same in every run."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import AttentionLayer, KVWrite, PreAttention
from jackfield.layers.sampling import sample
from jackfield.layers.torch_ops import TorchOps
from jackfield.testing.ops_twin import PlainNorm, PlainRotary, TwinContext
from jackfield.testing.sampling_twin import Draw, sampling_rows, twin
from jackfield_ops_triton.kernels import norm, sampling
from jackfield_ops_triton.ops import KERNELS, TritonOps

# A tiny temperature divides to minus infinity, as it is meant to; the interpreter's NumPy tells.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
SAME_EACH_TIME = settings(derandomize=True, deadline=None)
DTYPES = st.sampled_from([torch.float32, torch.float16])
SEEDS = st.integers(0, 999)


def apart(rows: int, width: int, dtype: torch.dtype, random: torch.Generator) -> torch.Tensor:
    """Rows that lie apart, from an odd place on."""
    return torch.randn(rows, width + 4, generator=random).to(dtype)[:, 1:-3]


@settings(SAME_EACH_TIME, max_examples=30)
@given(
    rows=st.integers(1, 3),
    size=st.integers(1, 70),
    dtype=DTYPES,
    wide_weight=st.booleans(),
    adds=st.booleans(),
    largest_block=st.sampled_from([1, 16, 64, 128]),
    seed=SEEDS,
)
def test_norms_of_all_widths(
    rows: int, size: int, dtype: torch.dtype, wide_weight: bool, adds: bool, largest_block: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    x, residual = (apart(rows, size, dtype, random) for _ in range(2))
    weight = torch.randn(size, generator=random).to(torch.float32 if wide_weight else dtype)
    found = norm.norm(x, weight, 1e-5, residual if adds else None, largest_block=largest_block)
    for mine, theirs in zip(found, TorchOps().norm(x, weight, 1e-5, residual if adds else None), strict=True):
        torch.testing.assert_close(mine, theirs)


@settings(SAME_EACH_TIME, max_examples=30)
@given(
    share=st.integers(1, 6),
    kv_heads=st.integers(1, 5),
    size=st.sampled_from([2, 5, 16, 33, 40]),
    v_size=st.sampled_from([1, 16, 33]),
    turned=st.integers(0, 20),
    norms=st.tuples(st.booleans(), st.booleans()),
    rows=st.integers(1, 3),
    page_size=st.sampled_from([0, 1, 3, 16]),
    layout=st.sampled_from(["nhd-paged", "hnd-paged"]),
    dtype=DTYPES,
    kv_dtype=DTYPES,
    seed=SEEDS,
)
def test_heads_of_all_shapes(
    share: int,
    kv_heads: int,
    size: int,
    v_size: int,
    turned: int,
    norms: tuple[bool, bool],
    rows: int,
    page_size: int,
    layout: str,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    seed: int,
) -> None:
    """turned: pairs of a head's dimensions, if it has so many; page_size 0: keys and values are returned."""
    random = torch.Generator().manual_seed(seed)
    q_heads, turned = share * kv_heads, min(turned, size // 2)
    layer = AttentionLayer(
        id=0, group="full", num_heads=q_heads, num_kv_heads=kv_heads, head_size=size, v_head_size=v_size, scale=1.0
    )
    q_norm, k_norm = (
        PlainNorm(weight=torch.randn(size, generator=random).to(dtype), eps=1e-5) if normed else None
        for normed in norms
    )
    block = PreAttention(
        layer=layer,
        norm=PlainNorm(weight=torch.ones(1), eps=1e-5),
        qkv=None,
        qkv_bias=None,
        rotary=PlainRotary(size=2 * turned) if turned else None,
        q_norm=q_norm,
        k_norm=k_norm,
    )
    qkv = apart(rows, (q_heads + kv_heads) * size + kv_heads * v_size, dtype, random)
    positions = torch.randint(0, 100, (rows,), generator=random)
    wanted = TorchOps()._heads(block, qkv, TwinContext(TorchOps(), positions))
    ops, write = TritonOps(KERNELS), None
    if page_size:
        slots = torch.randperm(2 * page_size + 1, generator=random)[:rows] + page_size
        order = (0, 1, 2, 3) if layout == "nhd-paged" else (0, 2, 1, 3)
        shapes = ((4, page_size, kv_heads, one) for one in (size, v_size))
        k, v = (torch.full([shape[axis] for axis in order], 7, dtype=kv_dtype) for shape in shapes)
        write = KVWrite(slots=slots, k=k, v=v, page_size=page_size, layout=layout)
    q, *found = ops._heads(block, qkv, TwinContext(ops, positions, write=write))
    torch.testing.assert_close(q, wanted[0])
    for at, mine in enumerate(found):
        theirs = wanted[at + 1]
        assert theirs is not None
        if write is not None:
            assert mine is None
            tokens = (k, v)[at].permute(order).flatten(0, 1)
            mine, theirs = tokens[slots], theirs.to(kv_dtype)
            untouched = torch.ones(len(tokens), dtype=torch.bool).index_fill(0, slots, False)
            assert bool((tokens[untouched] == 7).all())
        error = 1e-3 if torch.float16 in (dtype, kv_dtype) else 1e-5
        torch.testing.assert_close(mine, theirs, rtol=error, atol=error)


NUMBERS = st.sampled_from(
    [0.0, -0.0, 1.0, 1.0, -2.5, 3.25, 80.0, 3e38, -3e38, -math.inf, -math.inf, math.inf, math.nan]
)
SOUND = NUMBERS.filter(lambda x: x < math.inf)
draws = st.builds(
    Draw,
    temperature=st.sampled_from([0.0, 1.0, 1.0, 0.3, 1e-5, 1e30]),
    top_k=st.sampled_from([1, 2, 3, 12, 13, 2**31 - 1]),
    top_p=st.sampled_from([0.0, 1e-6, 0.5, 0.9, 1.0, 1.0]),
    min_p=st.sampled_from([0.0, 0.0, 0.1, 1.0]),
    stream=st.integers(-(2**63), 2**63 - 1),
)


@settings(SAME_EACH_TIME, max_examples=15)
@given(
    rows=st.integers(1, 13).flatmap(
        lambda vocab: st.lists(
            st.tuples(
                st.lists(st.sampled_from([SOUND, SOUND, NUMBERS]).flatmap(lambda x: x), min_size=vocab, max_size=vocab),
                draws,
            ),
            min_size=1,
            max_size=3,
        )
    ),
    room=st.sampled_from([1, 4, 16]),
    tile=st.sampled_from([4, 16]),
)
def test_draws_from_ties_and_odd_numbers(rows: list[tuple[list[float], Draw]], room: int, tile: int) -> None:
    """As on the host, and alone as among others."""
    logits = torch.tensor([row for row, _ in rows])
    found = sampling.sample(logits, sampling_rows([draw for _, draw in rows]), room=room, tile=tile).tolist()
    for (row, draw), token in zip(rows, found, strict=True):
        given_ = sampling_rows([draw])
        assert sampling.sample(torch.tensor([row]), given_, room=16, tile=16).tolist() == [token]
        (theirs,) = sample(torch.tensor([row]), given_).tolist()
        # So near to the edge of a filter, or to a tie of the race, float32 may fall on either side.
        assert token == theirs or (theirs >= 0 and twin(row, draw)[1] < 1e-5)
