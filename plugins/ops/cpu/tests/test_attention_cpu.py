"""Native attention against the float64 reference: at every level of the library, in batches of every kind."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import CORE_LAYOUTS, HND_PAGED, NHD_PAGED, KVLayout
from jackfield.testing.attention_cases import AttentionCase, PreparedCase, check, check_prepared, prepare, run
from jackfield.testing.attention_grid import BATCHES
from jackfield.testing.conformance import AttentionConformance
from jackfield_ops_cpu.attention import NativeAttention
from jackfield_ops_cpu.library import LEVELS, library, use_level

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LAYOUTS = tuple(CORE_LAYOUTS.values())


@pytest.fixture
def threads() -> Iterator[None]:
    """Gives torch its number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class TestConformance(AttentionConformance):
    plugin = "cpu"


def share(prepared: PreparedCase, members: list[int], tokens: int) -> PreparedCase:
    """The case with the first tokens of these batch rows in the same slots, as far as the first member has them."""
    table = prepared.context.tables[prepared.case.layer.group]
    first, *others = (int(prepared.batch.rows[i]) for i in members)
    window = prepared.case.window
    cached = [prepared.case.lengths[i][0] for i in members]
    low = 0 if window is None else max(0, max(cached) - window + 1)
    for row in others:
        table[row, low:tokens] = table[first, low:tokens]
    return prepared


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_level_computes_every_kind_of_batch(native: ctypes.CDLL, dtype: torch.dtype, layout: KVLayout) -> None:
    features: tuple[dict[str, Any], ...] = (
        {"head_size": 64, "num_heads": 9, "num_kv_heads": 3, "page_size": 16},
        {"head_size": 80, "v_head_size": 24, "page_size": 3, "window": 17},
        {"head_size": 9, "v_head_size": 7, "soft_cap": 2.0},  # sizes of no whole vector
        {"head_size": 136, "num_heads": 7, "num_kv_heads": 1, "causal": False, "window": 8},
    )
    for batch, changes in zip(BATCHES.values(), features * 2, strict=False):
        check(AttentionCase(lengths=batch, layout=layout, dtype=dtype, **changes), NativeAttention)


@settings(max_examples=100)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.sampled_from([1, 1, 1, 2, 9, 70])), min_size=1, max_size=6),
    page_size=st.sampled_from([1, 3, 16, 64]),
    window=st.none() | st.integers(1, 160),
    soft_cap=st.sampled_from([None, None, 5.0]),
    causal=st.sampled_from([True, True, False]),
    heads=st.sampled_from([(4, 2), (9, 3), (3, 1), (2, 2)]),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    exact=st.booleans(),
    level=st.sampled_from(LEVELS),
    shared=st.integers(0, 130),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_batch_equals_the_reference(
    heads: tuple[int, int], level: str, shared: int, lengths: list[tuple[int, int]], **case: Any
) -> None:
    prepared = prepare(AttentionCase(lengths=lengths, num_heads=heads[0], num_kv_heads=heads[1], **case))
    long = [i for i, (cached, _) in enumerate(lengths) if cached >= shared]
    if len(long) > 1:
        share(prepared, long, shared)
    loaded, before = library(), library().jf_level().decode()
    loaded.jf_use_level(level.encode())  # the best remains where the processor lacks it
    try:
        check_prepared(prepared, NativeAttention(prepared.context))
    finally:
        use_level(loaded, before)


def passes(prepared: PreparedCase) -> tuple[int, int]:
    backend = NativeAttention(prepared.context)
    backend.bind(prepared.pools)
    return backend.plan(prepared.batch).shared()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_begin_with_the_same_slots_go_over_them_together(layout: KVLayout, dtype: torch.dtype) -> None:
    """Whole families of prefixes: 100 tokens of all but one row, of these 80 more of three."""
    lengths = ((250, 1), (200, 1), (180, 3), (101, 1), (400, 1), (300, 2))
    prepared = prepare(AttentionCase(lengths=lengths, layout=layout, dtype=dtype, num_heads=9, num_kv_heads=3))
    assert passes(prepared) == (0, 0)
    share(prepared, [0, 1, 2, 3, 5], 100)
    assert passes(prepared) == (1, 100)
    share(prepared, [0, 2, 5], 180)
    assert passes(prepared) == (2, 180)
    check_prepared(prepared, NativeAttention(prepared.context))


def test_many_rows_over_one_prefix_are_several_blocks() -> None:
    lengths = [(120 + i % 7, 1 + i % 2) for i in range(50)]
    prepared = prepare(AttentionCase(lengths=lengths, layout=HND_PAGED, num_heads=8, num_kv_heads=1, page_size=16))
    share(prepared, list(range(50)), 112)
    assert passes(prepared) == (1, 112)
    check_prepared(prepared, NativeAttention(prepared.context))


def test_what_is_no_common_prefix() -> None:
    """Fewer than 64 tokens, new tokens, long queries, and what lies before a window, whose slots are undefined."""
    for lengths, tokens, window in (
        ([(90, 1), (90, 1)], 63, None),
        ([(63, 1), (90, 1)], 64, None),
        ([(90, 64), (90, 64)], 90, None),
        ([(200, 1), (200, 1)], 180, 150),
    ):
        case = AttentionCase(lengths=lengths, layout=NHD_PAGED, window=window)
        prepared = share(prepare(case), [0, 1], tokens)
        assert passes(prepared) == (0, 0)
        check_prepared(prepared, NativeAttention(prepared.context))
    inside = prepare(AttentionCase(lengths=[(100, 1), (90, 1)], layout=NHD_PAGED, window=150))
    assert passes(share(inside, [0, 1], 80)) == (1, 80)


def test_the_number_of_threads_changes_nothing_but_the_order_of_sums(threads: None) -> None:
    """One long row among short ones is cut, so that all threads have work; so is a lone one."""
    for lengths in ([(1500, 1)], [(20, 1), (900, 1), (31, 1), (7, 1)], [(700, 40), (3, 1)], [(0, 150)]):
        case = AttentionCase(lengths=lengths, layout=HND_PAGED, page_size=16, num_heads=9, num_kv_heads=3, head_size=64)
        torch.set_num_threads(3)
        check(case, NativeAttention)
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            prepared = prepare(case)
            found.append(run(prepared, NativeAttention(prepared.context)))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], rtol=2e-6, atol=2e-6)


def test_more_heads_on_one_kv_head_than_the_largest_block() -> None:
    case = AttentionCase(lengths=((12, 1), (0, 9), (200, 1)), layout=NHD_PAGED, num_heads=260, num_kv_heads=1)
    check(case, NativeAttention)
    check(case, NativeAttention, dtype=torch.bfloat16, page_size=16)


def one_hot_case(dtype: torch.dtype, keys: int, size: int) -> PreparedCase:
    """One query over so many keys, whose values are to be filled in."""
    case = AttentionCase(
        lengths=[(0, keys)],
        layout=NHD_PAGED,
        dtype=dtype,
        num_heads=1,
        num_kv_heads=1,
        head_size=size,
        v_head_size=size,
        scale=1.0,
        causal=False,
    )
    return prepare(case)


def test_weights_are_as_exact_as_float32_allows(native: ctypes.CDLL) -> None:
    """Values that are unit vectors show the weights themselves."""
    prepared = one_hot_case(torch.float32, 64, 64)
    q, k, v = prepared.q, prepared.k, prepared.v
    k.copy_(torch.eye(64).unsqueeze(1))
    v.copy_(torch.eye(64).unsqueeze(1))
    q.copy_(torch.linspace(-1, 1, q.numel()).view_as(q))
    found = run(prepared, NativeAttention(prepared.context)).double()
    wanted = torch.softmax(q.double(), dim=-1)
    assert float((found / wanted - 1).abs().max()) < 4e-7
    q.mul_(80)
    found = run(prepared, NativeAttention(prepared.context)).double()
    wanted = torch.softmax(q.double(), dim=-1)
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_number_of_a_dtype_survives(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    """A token that sees only itself gives its own value, bit for bit: no conversion changes one."""
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    numbers = numbers[numbers.isfinite()]
    if dtype is torch.bfloat16:  # the processor's products take denormals for 0
        numbers = numbers[(numbers == 0) | (numbers.float().abs() >= torch.finfo(dtype).tiny)]
    size = 64
    rows = -(-len(numbers) // size)
    case = AttentionCase(
        lengths=[(0, 1)] * rows, layout=NHD_PAGED, dtype=dtype, num_heads=1, num_kv_heads=1, head_size=size
    )
    prepared = prepare(case)
    padded = torch.zeros(rows * size, dtype=dtype)
    padded[: len(numbers)] = numbers
    prepared.v.copy_(padded.view(rows, 1, size))
    found = run(prepared, NativeAttention(prepared.context)).flatten()
    assert torch.equal(found.float(), padded.float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_are_rounded_to_nearest(native: ctypes.CDLL, dtype: torch.dtype) -> None:
    """Two equal weights: the middle of two neighbours goes to the even one, as torch rounds."""
    values = torch.linspace(-3, 3, 64, dtype=torch.float64).to(dtype)
    prepared = one_hot_case(dtype, 2, 64)
    prepared.q.zero_()
    prepared.v[0, 0], prepared.v[1, 0] = values, (values.float() * 1.01).to(dtype)
    found = run(prepared, NativeAttention(prepared.context))[0, 0]
    assert torch.equal(found, (prepared.v.float().sum(dim=0)[0] / 2).to(dtype))


def test_memory_that_is_not_what_the_layout_says_is_refused() -> None:
    prepared = prepare(AttentionCase(lengths=[(3, 1)], layout=NHD_PAGED))
    kv = prepared.kv
    for wrong in (lambda t: t.double(), lambda t: torch.cat([t, t], dim=-1)[..., : t.shape[-1]]):
        tensors = {**kv.tensors, "v": tuple(wrong(t) for t in kv.tensors["v"])}
        with pytest.raises(ValueError, match=r"the v of layer 0 is .*: attention\.cpu reads contiguous float32"):
            NativeAttention(prepared.context).bind({kv.group.name: replace(kv, tensors=tensors)})


def test_plans_are_used_again_and_may_outlive_their_backend() -> None:
    prepared = prepare(AttentionCase(lengths=[(3, 1), (80, 1)], layout=NHD_PAGED))
    backend = NativeAttention(prepared.context)
    backend.bind(prepared.pools)
    first = backend.plan(prepared.batch)
    handle = first.handle
    del first
    second = backend.plan(prepared.batch)
    assert second.handle == handle
    del backend
    assert second.shared() == (0, 0)
