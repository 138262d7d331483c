"""Decoders against the gguf package's, bit for bit, on random blocks."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from jackfield.layers.quantization import ENCODINGS, decode


@pytest.mark.parametrize("name", ENCODINGS)
def test_decoding_equals_ggml_bit_for_bit(name: str) -> None:
    form = ENCODINGS[name]
    blocks = np.random.default_rng(11).integers(0, 256, (50, 3 * form.nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):  # random bytes are random scales too: infinities and NaN among them
        expected = gguf.quants.dequantize(blocks, getattr(gguf.GGMLQuantizationType, name.upper()))
    got = decode(name, torch.from_numpy(blocks)).numpy()
    assert got.dtype == np.float32
    assert got.shape == expected.shape == (50, 3 * form.elements)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ENCODINGS)
def test_block_sizes_are_ggmls(name: str) -> None:
    elements, nbytes = gguf.GGML_QUANT_SIZES[getattr(gguf.GGMLQuantizationType, name.upper())]
    assert (ENCODINGS[name].elements, ENCODINGS[name].nbytes) == (elements, nbytes)


def test_an_unknown_encoding_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        decode("iq9_z", torch.zeros(1, 32, dtype=torch.uint8))
