"""Token masks on logits: bit by bit, on their rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from jackfield.hookspecs import TokenMasks
from jackfield.layers.token_mask import apply_masks

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 100, 1000])
def test_what_is_not_allowed_is_minus_infinity(device: str, vocab: int) -> None:
    dice = np.random.default_rng(vocab)
    allowed = dice.random((2, -(-vocab // 32) * 32)) < 0.5
    masks = TokenMasks(
        rows=np.array([9, 2], dtype=np.int32), bits=np.packbits(allowed, axis=1, bitorder="little").view(np.uint32)
    )
    before = torch.tensor(dice.normal(size=(4, vocab)), dtype=torch.float32, device=device)
    logits = before.clone()
    apply_masks(logits, np.array([5, 2, 9, 1], dtype=np.int32), masks)
    assert torch.equal(logits[[0, 3]], before[[0, 3]])
    for line, mask in ((2, allowed[0, :vocab]), (1, allowed[1, :vocab])):
        want = before[line].masked_fill(torch.tensor(~mask, device=device), float("-inf"))
        assert torch.equal(logits[line], want)


@pytest.mark.parametrize(
    ("rows", "shape", "dtype"), [([3], (1, 2), np.uint32), ([5], (1, 3), np.uint32), ([5], (1, 2), np.int32)]
)
def test_masks_that_do_not_fit(rows: list[int], shape: tuple[int, int], dtype: type) -> None:
    masks = TokenMasks(rows=np.array(rows, dtype=np.int32), bits=np.ones(shape, dtype=dtype))
    with pytest.raises(ValueError, match="token mask"):
        apply_masks(torch.zeros(2, 40), np.array([5, 9], dtype=np.int32), masks)
