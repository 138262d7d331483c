"""Blocks of rows: every row once, in proven sizes, with the same bits in every batch; and the proof itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.layers.row_blocks import (
    SIZES,
    agreeing_sizes,
    aligned,
    block_spans,
    matmul_block,
    matmul_by_blocks,
    probe_row,
)

some_sizes = st.lists(st.sampled_from([1, 3, 4, 8, 32, 50, 128]), min_size=1, unique=True).map(sorted)


@given(st.integers(0, 1000), some_sizes)
def test_every_row_is_in_one_block(rows: int, sizes: list[int]) -> None:
    spans = list(block_spans(rows, sizes))
    assert [i for start, stop, _ in spans for i in range(start, stop)] == list(range(rows))
    assert all(size in sizes for _, _, size in spans)
    assert all(stop - start == size for start, stop, size in spans[:-1])
    if spans:
        start, stop, size = spans[-1]
        assert size == min(s for s in sizes if s >= stop - start) or stop - start == size


def test_few_rows_are_one_block_and_many_are_hardly_padded() -> None:
    for rows in range(1, 33):
        assert len(list(block_spans(rows, SIZES))) == 1
    for rows in range(33, 1000):
        assert sum(size for _, _, size in block_spans(rows, SIZES)) - rows < 16


def test_a_size_that_disagrees_is_left_out() -> None:
    def odd_at_eight(block: torch.Tensor) -> torch.Tensor:
        return block + (1e-6 if block.shape[0] == 8 else 0)

    def odd_last_row(block: torch.Tensor) -> torch.Tensor:
        found = block.clone()
        if block.shape[0] == 128:
            found[-1] += 1
        return found

    row = probe_row(5, dtype=torch.float32, device="cpu")
    assert agreeing_sizes(odd_at_eight, row) == (4, 16, 32, 64, 128)
    assert agreeing_sizes(odd_last_row, row) == (4, 8, 16, 32, 64)


def test_nothing_may_agree() -> None:
    assert agreeing_sizes(lambda block: block + torch.arange(block.shape[0])[:, None], torch.zeros(3)) == ()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@settings(max_examples=25)
@given(
    st.sampled_from([(64, 192), (96, 64), (577, 333), (1536, 576), (37, 5), (2048, 128)]),
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.integers(0, 2**31),
)
def test_a_row_has_the_same_bits_in_every_batch(
    threads: int, dtype: torch.dtype, shape: tuple[int, int], cuts: list[int], seed: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        generator = torch.Generator().manual_seed(seed)
        matrix = torch.randn(shape[1], shape[0], generator=generator).to(dtype).t()
        rows = torch.randn(sum(cuts), shape[0], generator=generator).to(dtype)
        probe = probe_row(shape[0], dtype=dtype, device="cpu")
        sizes = agreeing_sizes(lambda block: matmul_block(block, matrix), probe) or (1,)
        together = matmul_by_blocks(rows, matrix, sizes)
        apart = torch.cat([matmul_by_blocks(part, matrix, sizes) for part in rows.split(cuts)])
        alone = matmul_by_blocks(rows[-1:], matrix, sizes)
        backwards = matmul_by_blocks(rows.flip(0), matrix, sizes).flip(0)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(together, apart)
    assert torch.equal(together[-1:], alone)
    assert torch.equal(together, backwards)
    wanted = rows.double() @ matrix.double()
    assert float((together.double() - wanted).abs().max()) <= 0.02 * float(wanted.abs().max())


def test_alignment() -> None:
    whole = torch.arange(64.0)
    odd = whole[1:33]
    assert aligned(odd).data_ptr() % 64 == 0
    assert torch.equal(aligned(odd), odd)
    assert aligned(aligned(odd)).data_ptr() == aligned(odd).data_ptr() or odd.data_ptr() % 64
