"""KV tensors follow their layout, and the byte count that sizes the pool is the count of what is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jackfield.hookspecs import CORE_LAYOUTS, InsufficientMemory, KVGroup, KVLayout, KVTensorSpec
from jackfield.model_executor.kv_tensors import allocate_kv, page_bytes

GROUPS = (
    KVGroup(name="full", kind="full", layers=(0, 2), num_kv_heads=3, head_size=8, v_head_size=4),
    KVGroup(name="window", kind="window", layers=(1,), num_kv_heads=1, head_size=16, v_head_size=16, window=8),
)
QUANTISED = KVLayout(
    name="mine/int8",
    tensors=(
        KVTensorSpec(role="kv", shape=(2, "kv_heads", "page", "head"), dtype="int8"),
        KVTensorSpec(role="scale", shape=("page", 2), dtype="float32"),
    ),
)


@pytest.mark.parametrize("layout", [*CORE_LAYOUTS.values(), QUANTISED], ids=lambda layout: layout.name)
@pytest.mark.parametrize("page_size", [1, 16])
def test_what_is_counted_is_what_is_allocated(layout: KVLayout, page_size: int) -> None:
    layouts = {"full": layout, "window": layout}
    kv = allocate_kv(GROUPS, layouts, 5, page_size, torch.bfloat16, torch.device("cpu"))
    allocated = sum(
        tensor.numel() * tensor.itemsize for group in kv.values() for role in group.tensors.values() for tensor in role
    )
    assert allocated == 6 * page_bytes(GROUPS, layouts, page_size, torch.bfloat16)


def test_the_shapes_are_the_layouts() -> None:
    kv = allocate_kv(
        GROUPS,
        {"full": CORE_LAYOUTS["nhd-paged"], "window": CORE_LAYOUTS["hnd-paged"]},
        5,
        4,
        torch.float32,
        torch.device("cpu"),
    )
    assert kv["full"].of("k", 2).shape == (6, 4, 3, 8)
    assert kv["full"].of("v", 0).shape == (6, 4, 3, 4)
    assert kv["window"].of("k", 1).shape == (6, 1, 4, 16)
    assert kv["full"].of("k", 0).data_ptr() != kv["full"].of("k", 2).data_ptr()


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def resident() -> int:
    """KiB of memory of its own that this process holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_only_pages_that_were_written_take_memory() -> None:
    """A pool of 192 MiB in which one token of each tensor is written takes a page for each, and no page of 2 MiB."""
    if HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text():
        pytest.skip("this system gives pages of 2 MiB to everybody")
    group = KVGroup(name="full", kind="full", layers=tuple(range(24)), num_kv_heads=2, head_size=64, v_head_size=64)
    layout = CORE_LAYOUTS["nhd-paged"]
    before = resident()
    kv = allocate_kv((group,), {"full": layout}, 1 << 14, 1, torch.bfloat16, torch.device("cpu"))
    tensors = [tensor for role in kv["full"].tensors.values() for tensor in role]
    assert sum(tensor.numel() * tensor.itemsize for tensor in tensors) > 190 << 20
    for tensor in tensors:
        assert float(tensor[9000].abs().sum()) == 0.0
        tensor[9000] = 1.0
        assert float(tensor[9000].sum()) == 128.0
    assert resident() - before < 8 << 10


def test_a_pool_that_the_system_refuses_is_told_as_such() -> None:
    group = KVGroup(name="full", kind="full", layers=(0,), num_kv_heads=1 << 20, head_size=1 << 20, v_head_size=8)
    with pytest.raises(InsufficientMemory, match="lower --max-total-tokens"):
        allocate_kv((group,), {"full": CORE_LAYOUTS["nhd-paged"]}, 1 << 20, 1, torch.float32, torch.device("cpu"))
