from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tests.covering import pairwise


@given(st.lists(st.integers(2, 5), min_size=2, max_size=6))
def test_every_pair_of_values_occurs(sizes: list[int]) -> None:
    factors = {f"f{i}": list(range(size)) for i, size in enumerate(sizes)}
    rows = pairwise(factors)
    for a, b in itertools.combinations(factors, 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(factors[a], factors[b]))
