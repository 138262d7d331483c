"""Rows and columns of weights, in every dtype and encoding, in small blocks and large."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jackfield.hookspecs import Weight
from jackfield.layers import weight_reader
from jackfield.layers.quantization import ENCODINGS
from jackfield.layers.weight_reader import BadWeight, check_weight, columns_are_whole, copy_rows, packed_rows

SHAPE = (10, 64)


def weight(dtype: str, shape: tuple[int, ...] = SHAPE, *, misaligned: bool = False) -> tuple[Weight, torch.Tensor]:
    """A plain weight, and its values."""
    torch.manual_seed(1)
    values = torch.randn(shape).to(getattr(torch, dtype))
    data = values.contiguous().view(torch.uint8).numpy().reshape(-1)
    if misaligned:
        data = np.concatenate((np.zeros(1, np.uint8), data))[1:]
    data.flags.writeable = False
    return Weight(name="w", encoding="plain", dtype=dtype, shape=shape, parts={"data": data}), values


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("target", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("misaligned", [True, False])
def test_plain_weights_are_converted(dtype: str, target: torch.dtype, misaligned: bool) -> None:
    given_weight, values = weight(dtype, misaligned=misaligned)
    check_weight(given_weight)
    filled = torch.full(SHAPE, torch.nan, dtype=target)
    copy_rows(filled, given_weight, (0, 10))
    assert torch.equal(filled, values.to(target))


@given(st.data())
def test_any_part_in_blocks_of_any_size(data: st.DataObject) -> None:
    first_row, last_row = sorted(data.draw(st.tuples(st.integers(0, 10), st.integers(0, 10)), "rows"))
    first, last = sorted(data.draw(st.lists(st.integers(0, 64), min_size=2, max_size=2, unique=True), "columns"))
    block = data.draw(st.sampled_from([1, 64, 100, 200, 1 << 20]), "block")
    given_weight, values = weight("bfloat16")
    filled = torch.full((last_row - first_row, last - first), torch.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weight_reader, "BLOCK_ELEMENTS", block)
        copy_rows(filled, given_weight, (first_row, last_row), (first, last))
    assert torch.equal(filled, values[first_row:last_row, first:last].float())


def test_vectors_are_one_row() -> None:
    given_weight, values = weight("float16", (17,))
    filled = torch.empty(5)
    copy_rows(filled, given_weight, columns=(3, 8))
    assert torch.equal(filled, values[3:8].float())


def test_packed_parts() -> None:
    values = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    given_weight = Weight(name="w", encoding="q8_0", dtype="float32", shape=SHAPE, parts={"data": data})
    check_weight(given_weight)
    decoded = torch.from_numpy(gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q8_0))
    filled = torch.empty(4, 40)
    copy_rows(filled, given_weight, (2, 6), (7, 47))  # cuts blocks
    assert torch.equal(filled, decoded[2:6, 7:47])
    still_packed = packed_rows(given_weight, (2, 6), (32, 64), "cpu")
    assert still_packed.shape == (4, ENCODINGS["q8_0"].nbytes)
    np.testing.assert_array_equal(still_packed.numpy(), data[2:6, 34:])
    assert columns_are_whole("q8_0", (32, 64))
    assert not columns_are_whole("q8_0", (16, 64))


@pytest.mark.parametrize(
    ("encoding", "dtype", "shape", "nbytes", "why"),
    [
        ("plain", "float64", (2, 4), 64, "float64"),
        ("plain", "float32", (2, 4), 28, "28 bytes"),
        ("plain", "float32", (2, 4), 36, "36 bytes"),
        ("q8_0", "float32", (2, 48), 102, "whole blocks of 32"),
        ("q8_0", "float32", (2, 32), 67, "67 bytes"),
        ("q8_0", "float32", (), 34, "whole blocks"),
        ("gptq", "float32", (2, 32), 68, "'gptq'.*q8_0"),
    ],
)
def test_content_that_cannot_be_read(encoding: str, dtype: str, shape: tuple[int, ...], nbytes: int, why: str) -> None:
    data = np.zeros(nbytes, dtype=np.uint8)
    with pytest.raises(BadWeight, match=why):
        check_weight(Weight(name="w", encoding=encoding, dtype=dtype, shape=shape, parts={"data": data}))


def test_a_weight_without_data_cannot_be_read() -> None:
    with pytest.raises(BadWeight, match="'data'"):
        check_weight(Weight(name="w", encoding="plain", dtype="float32", shape=(1,), parts={}))
