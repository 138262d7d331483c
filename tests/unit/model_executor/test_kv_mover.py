"""`TorchMover`: what is read from some slots and written to others is there, in either layout and any page size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from jackfield.hookspecs import HND_PAGED, NHD_PAGED, KVGroup, KVLayout
from jackfield.model_executor.kv_mover import TorchMover
from jackfield.model_executor.kv_tensors import allocate_kv, page_bytes

GROUP = KVGroup(name="full", kind="full", layers=(0, 1, 2), num_kv_heads=2, head_size=4, v_head_size=6)


def pool(layout: KVLayout, page_size: int, dtype: torch.dtype = torch.float32) -> dict[str, object]:
    kv = allocate_kv([GROUP], {"full": layout}, 32 // page_size, page_size, dtype, torch.device("cpu"))
    generator = torch.Generator().manual_seed(3)
    for tensors in kv["full"].tensors.values():
        for tensor in tensors:
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return dict(kv)


def row(kv: dict[str, object], role: str, layer: int, slot: int) -> torch.Tensor:
    """The bytes of the KV of one slot, found by the layout's own words."""
    tensors = kv["full"]
    page, place = divmod(slot, tensors.page_size)  # type: ignore[attr-defined]
    tensor: torch.Tensor = tensors.of(role, layer)[page]  # type: ignore[attr-defined]
    found = tensor[:, place] if tensors.layout is HND_PAGED else tensor[place]  # type: ignore[attr-defined]
    return found.view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("layout", [NHD_PAGED, HND_PAGED], ids=lambda layout: layout.name)
def test_a_copy_there_and_back(layout: KVLayout, page_size: int, dtype: torch.dtype) -> None:
    kv = pool(layout, page_size, dtype)
    mover = TorchMover(kv)  # type: ignore[arg-type]
    assert mover.bytes_per_slot * page_size == page_bytes([GROUP], {"full": layout}, page_size, dtype)
    source, target = np.array([17, 3, 30], dtype=np.int32), np.array([20, 21, 1], dtype=np.int32)
    before = {
        (role, layer, slot): row(kv, role, layer, slot).clone()
        for role in "kv"
        for layer in range(3)
        for slot in range(33)
    }
    first = mover.read(source)
    (read,) = mover.poll()
    assert (read.ticket, read.error) == (first, "")
    assert read.data is not None
    assert read.data.shape == (3, mover.bytes_per_slot)
    second = mover.write(target, read.data)
    (written,) = mover.poll()
    assert written.ticket == second != first
    assert mover.poll() == []
    moved = dict(zip(target.tolist(), source.tolist(), strict=True))
    for (role, layer, slot), was in before.items():
        now = row(kv, role, layer, slot)
        assert torch.equal(now, before[role, layer, moved.get(slot, slot)]), (role, layer, slot)
        assert slot in moved or torch.equal(now, was)


def test_bytes_of_one_dtype_are_none_of_another() -> None:
    dtypes = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8)
    assert len({TorchMover(pool(NHD_PAGED, 4, dtype)).layout for dtype in dtypes}) == len(dtypes)  # type: ignore[arg-type]


def test_bytes_mean_the_same_in_either_layout() -> None:
    slots = np.array([5, 9], dtype=np.int32)
    kv = [pool(NHD_PAGED, 4), pool(HND_PAGED, 4)]
    movers = [TorchMover(each) for each in kv]  # type: ignore[arg-type]
    movers[0].read(slots)
    data = movers[0].poll()[0].data
    assert data is not None
    movers[1].write(slots, data)
    assert torch.equal(row(kv[1], "v", 2, 9), row(kv[0], "v", 2, 9))
    with pytest.raises(ValueError, match="bytes for"):
        movers[1].write(slots, data[:1])
