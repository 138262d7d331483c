"""How the torch worker sizes the window pool, and how it finds a row's slots there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import NHD_PAGED, InsufficientMemory, KVGroup, WindowWrites
from jackfield.managers.scheduler.window import most_held
from jackfield.model_executor.device import CpuDevice
from jackfield.model_executor.kv_tensors import allocate_kv, page_bytes
from jackfield.model_executor.pool_sizes import PoolSizes, pool_sizes
from jackfield.model_executor.req_to_token import ReqToTokenTable
from jackfield.model_executor.room import Room
from jackfield.model_executor.window_table import WindowTable

CPU = torch.device("cpu")
MIB = 2**20


def group(kind: str, layers: int) -> KVGroup:
    return KVGroup(
        name=kind,
        kind=kind,
        layers=tuple(range(layers)),
        num_kv_heads=2,
        head_size=16,
        v_head_size=16,
        window=64 if kind == "window" else None,
    )


FULL, NARROW = group("full", 1), group("window", 3)
LAYOUTS = {"full": NHD_PAGED, "window": NHD_PAGED}


def sizes(groups: tuple[KVGroup, ...] = (FULL, NARROW), *, available: int = 64 * MIB, **changes: Any) -> PoolSizes:
    """available: for the pool, of which one of no named size may take four fifths."""
    arguments: dict[str, Any] = {
        "kv_dtype": torch.float16,
        "page_size": 4,
        "wanted": None,
        "room": Room(most=available, share=available * 4 // 5, most_tokens=None, why="this test has so much"),
        "window_pool": True,
        "max_running": 8,
        "max_tokens": 256,
        "max_context": 32768,
    }
    return pool_sizes(groups, LAYOUTS, **{**arguments, **changes})


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def test_without_a_window_pool_every_layer_has_every_slot() -> None:
    for found in (sizes(window_pool=False), sizes((FULL,))):
        assert (found.window, found.window_slots) == (None, 0)


def test_memory_that_windows_do_not_need_goes_to_the_full_layers() -> None:
    """Eight windows of 64 and their steps are little beside what fits, so that three quarters of the memory come free."""
    found, plain = sizes(), sizes(window_pool=False)
    assert found.window == 64
    assert found.window_slots < 3000
    assert found.total_slots > 3 * plain.total_slots
    assert found.bytes <= 0.8 * 64 * MIB
    assert found.bytes > 0.79 * 64 * MIB


def test_the_bytes_are_those_that_are_allocated() -> None:
    found = sizes(available=8 * MIB)
    kv = allocate_kv((FULL, NARROW), LAYOUTS, found.total_slots // 4, 4, torch.float16, CPU, found.window_slots // 4)
    held = [tensor for one in kv.values() for layers in one.tensors.values() for tensor in layers]
    assert sum(tensor.numel() * tensor.itemsize for tensor in held) == found.bytes
    assert kv["window"].of("k", 2).shape[0] == found.window_slots // 4 + 1
    assert kv["full"].of("k", 0).shape[0] == found.total_slots // 4 + 1


@pytest.mark.parametrize("wanted", [512, 1000, 4096, 100_000])
def test_one_request_alone_always_fits(wanted: int) -> None:
    found = sizes(wanted=wanted)
    assert found.total_slots == wanted // 4 * 4
    assert found.window_slots >= min(found.total_slots, most_held(64, 4, 256 + 1))
    assert found.window_slots <= found.total_slots


def test_window_layers_alone_are_not_bound_by_the_length_of_requests() -> None:
    found = sizes((NARROW,), max_running=4)
    assert found.total_slots == 4 * 32768
    assert found.window_slots < 2000
    small = sizes((NARROW,), max_running=4, available=MIB // 2)
    assert small.total_slots == 4 * 32768
    assert small.bytes <= MIB // 2


def test_what_does_not_fit_is_refused_with_its_numbers() -> None:
    narrow = page_bytes((NARROW,), LAYOUTS, 4, torch.float16)
    with pytest.raises(InsufficientMemory, match="not one page"):
        sizes(available=narrow)
    with pytest.raises(
        InsufficientMemory, match=r"this test has so much: lower --max-total-tokens to \d+ or less"
    ) as caught:
        sizes(wanted=1_000_000)
    fitting = int(str(caught.value).rpartition(" to ")[2].split()[0])
    assert sizes(wanted=fitting).bytes <= 64 * MIB
    with pytest.raises(InsufficientMemory, match="lower --max-total-tokens"):
        sizes(wanted=fitting + 4)
    with pytest.raises(InsufficientMemory, match="one page"):
        sizes(wanted=3)


def test_rows_find_their_slots_from_the_window_on() -> None:
    """Page 4, window 6: two rows over scattered pages; entries before what a query sees stay as they were."""
    table = ReqToTokenTable(3, 24, CpuDevice())
    pages = {1: [9, 2, 5, 7], 2: [3, 8]}
    for row, held in pages.items():
        for i, page in enumerate(held):
            table.slots[row, 4 * i : 4 * i + 4] = torch.arange(4 * page, 4 * page + 4)
    window = WindowTable(table, total_slots=40, page_size=4, tokens=6)
    to = {2: 1, 5: 3, 7: 2, 3: 5, 8: 4}
    window.apply(WindowWrites(pages=np.array(list(to), np.int32), window_pages=np.array(list(to.values()), np.int32)))
    window.look_up(ints(1, 2), ints(11, 0), ints(14, 5))
    expected = [0] * 6 + [to[pages[1][at // 4]] * 4 + at % 4 for at in range(6, 14)] + [0] * 10
    assert window.slots[1].tolist() == expected
    assert window.slots[2, :5].tolist() == [20, 21, 22, 23, 16]
    assert window.slots[0].tolist() == [0] * 24
    assert window.translate(torch.tensor([8, 31, 36])).tolist() == [4, 11, 0]
    window.apply(WindowWrites(pages=ints(2), window_pages=ints(0)))
    window.look_up(ints(1), ints(13), ints(14))
    assert window.slots[1].tolist() == expected
