"""The cases of an attention backend under an interpreter: fewer rows and heads, and the same questions."""

from __future__ import annotations

import pytest

from jackfield.hookspecs import NHD_PAGED
from jackfield.testing.attention_batches import AttentionCase
from jackfield.testing.attention_grid import BATCHES, SIZES, small


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("heads", SIZES["heads"])
def test_a_small_case_asks_the_same(name: str, heads: tuple[int, int]) -> None:
    case = AttentionCase(
        lengths=BATCHES[name], layout=NHD_PAGED, num_heads=heads[0], num_kv_heads=heads[1], window=7, seed=3
    )
    less = small(case)
    assert 1 <= len(less.lengths) <= 3
    assert set(less.lengths) <= set(case.lengths)
    assert less.num_heads <= 4
    assert less.num_heads / less.num_kv_heads == heads[0] / heads[1]
    assert (less.window, less.seed, less.head_size) == (case.window, case.seed, case.head_size)
    one_token = [new == 1 for _, new in case.lengths]
    if all(one_token) or name == "one-token rows among longer ones":
        assert any(new == 1 for _, new in less.lengths)
