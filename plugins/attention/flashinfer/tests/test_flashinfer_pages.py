"""The arithmetic of pages and masks, against the definition one token at a time. No FlashInfer, no stand-in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.testing.fake_device import FakeDevice
from jackfield_attention_flashinfer.mask import mask_starts, write_mask
from jackfield_attention_flashinfer.pages import DevicePages, host_pages, write_pages

ROWS = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 9)), min_size=1, max_size=5)
UNDEFINED = 999  # a page that no row has


def random_table(lengths: list[tuple[int, int]], window: int | None, page_size: int, seed: int) -> torch.Tensor:
    """int32 [rows + 1, wider than any row]; before a window's first token, and behind a row's end, it names UNDEFINED."""
    random = np.random.default_rng(seed)
    width = max(cached + new for cached, new in lengths) + page_size + 3
    table = np.full((len(lengths) + 1, width), UNDEFINED * page_size, dtype=np.int32)
    free = iter(random.permutation(400).tolist())
    for i, (cached, new) in enumerate(lengths):
        first = 0 if window is None else max(0, cached - (window - 1))
        for page in range(-(-(cached + new) // page_size)):
            number = next(free)
            for place in range(page_size):
                if first <= (token := page * page_size + place) < cached + new:
                    table[i + 1, token] = number * page_size + place
    return torch.from_numpy(table)


@settings(max_examples=120, deadline=None)
@given(
    lengths=ROWS,
    page_size=st.sampled_from([1, 3, 16]),
    window=st.sampled_from([None, 1, 2, 17]),
    slack=st.integers(0, 20),
    seed=st.integers(0, 99),
)
def test_pages_are_those_of_the_tokens_that_are_seen(
    lengths: list[tuple[int, int]], page_size: int, window: int | None, slack: int, seed: int
) -> None:
    """Also with a host that knows bounds alone: there the host's numbers are bounds of the device's."""
    table = random_table(lengths, window, page_size, seed)
    q_lens = np.array([new for _, new in lengths], dtype=np.int32)
    kv_lens = np.array([cached + new for cached, new in lengths], dtype=np.int32)
    host = host_pages(q_lens, kv_lens + slack, window, page_size, exact=slack == 0)
    pages = DevicePages.empty(len(lengths), host.total, torch.device("cpu"))
    rows = torch.arange(1, len(lengths) + 1, dtype=torch.int32)
    kept = write_pages(pages, table, rows, torch.from_numpy(q_lens), torch.from_numpy(kv_lens), window, page_size)
    if slack == 0:
        assert pages.indptr.tolist() == host.indptr.tolist()
        assert pages.last_page_len.tolist() == host.last_page_len.tolist()
        assert kept.tolist() == host.kv_lens.tolist()
    assert (kept.numpy() <= host.kv_lens).all()
    for i, (cached, new) in enumerate(lengths):
        mine = pages.indices[pages.indptr[i] : pages.indptr[i + 1]].tolist()
        assert UNDEFINED not in mine
        assert (len(mine) - 1) * page_size + int(pages.last_page_len[i]) == kept[i]
        before = cached + new - int(kept[i])  # tokens of the row before its first page
        assert before % page_size == 0
        first = 0 if window is None else max(0, cached - (window - 1))
        assert before <= first < before + page_size
        for token in range(first, cached + new):
            page, place = divmod(token - before, page_size)
            assert mine[page] * page_size + place == int(table[i + 1, token])


def test_indices_behind_the_last_row_are_pages_that_it_may_read() -> None:
    """A kernel may look ahead in its list."""
    table = random_table([(20, 1)], None, 4, 0)
    pages = DevicePages.empty(1, 16, torch.device("cpu"))
    one = torch.ones(1, dtype=torch.int32)
    write_pages(pages, table, one, one, torch.tensor([21], dtype=torch.int32), None, 4)
    assert pages.indptr.tolist() == [0, 6]
    assert set(pages.indices[6:].tolist()) == {int(table[1, 20]) // 4}


@settings(max_examples=100, deadline=None)
@given(lengths=ROWS, slack=st.sampled_from([0, 7]), seed=st.integers(0, 99))
def test_a_packed_mask_has_the_bits_of_the_tree(lengths: list[tuple[int, int]], slack: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    q_lens = np.array([new for _, new in lengths], dtype=np.int32)
    kv_lens = np.array([cached + new for cached, new in lengths], dtype=np.int32)
    among = torch.rand(int(q_lens.sum()), int(q_lens.max()) + 2, generator=random) < 0.5
    token = 0
    for _, new in lengths:
        among[token : token + new, new:] = False
        token += new
    q_starts = torch.from_numpy(np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32))
    starts = mask_starts(q_lens, kv_lens + slack)
    bits = torch.zeros(int(starts[-1]) + 3, dtype=torch.uint8)
    write_mask(bits, torch.from_numpy(starts), among, q_starts, torch.from_numpy(kv_lens).long())
    token = 0
    for i, (cached, new) in enumerate(lengths):
        for query in range(new):
            for key in range(cached + new):
                offset = query * (cached + new) + key
                bit = int(bits[starts[i] + offset // 8]) >> (offset % 8) & 1
                other = key - cached
                assert bit == (other < 0 or other == query or bool(among[token, other]))
            token += 1


@pytest.mark.parametrize("window", [None, 5])
def test_nothing_is_read_back(window: int | None) -> None:
    """`meta` tensors have no values that could be."""
    device = torch.device("meta")

    def ints(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int32, device=device)

    kept = write_pages(DevicePages.empty(3, 40, device), ints(9, 50), ints(3), ints(3), ints(3), window, 16)
    among = torch.empty(12, 4, dtype=torch.bool, device=device)
    write_mask(torch.empty(99, dtype=torch.uint8, device=device), ints(4), among, ints(4), kept)


def test_finding_pages_can_be_recorded() -> None:
    """A graph's plan does so in each replay: no number may be copied from the host."""
    table = torch.arange(24, dtype=torch.int32).reshape(2, 12)
    pages, device = DevicePages.empty(1, 6, torch.device("cpu")), FakeDevice()
    rows, lengths = torch.tensor([1], dtype=torch.int32), torch.tensor([5], dtype=torch.int32)
    graph = device.capture(lambda: write_pages(pages, table, rows, torch.ones_like(lengths), lengths, None, 2), None)
    pages.indptr.fill_(7)
    lengths.fill_(9)
    graph.replay()
    assert pages.indptr.tolist() == [0, 5]
    assert pages.indices[:5].tolist() == [6, 7, 8, 9, 10]
