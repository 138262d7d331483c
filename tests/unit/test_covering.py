from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jackfield.testing.covering import pairwise


@given(st.lists(st.integers(2, 5), min_size=2, max_size=6))
def test_every_pair_of_values_occurs(sizes: list[int]) -> None:
    factors = {f"f{i}": list(range(size)) for i, size in enumerate(sizes)}
    rows = pairwise(factors)
    for a, b in itertools.combinations(factors, 2):
        assert {(row[a], row[b]) for row in rows} == set(itertools.product(factors[a], factors[b]))


@given(st.lists(st.integers(2, 4), min_size=3, max_size=5), st.integers(0, 1), st.integers(0, 1))
def test_forbidden_pairs_are_in_no_row_and_all_others_are(sizes: list[int], i: int, j: int) -> None:
    factors = {f"f{i}": list(range(size)) for i, size in enumerate(sizes)}
    rows = pairwise(factors, lambda row: (row.get("f0"), row.get("f2")) != (i, j))
    for a, b in itertools.combinations(factors, 2):
        every = set(itertools.product(factors[a], factors[b])) - ({(i, j)} if (a, b) == ("f0", "f2") else set())
        assert {(row[a], row[b]) for row in rows} == every
