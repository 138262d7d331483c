"""Operators that write keys and values themselves: the context tells them where, and attention reads what they wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import CORE_LAYOUTS, NHD_PAGED, AttentionLayer, KVGroup, KVTensors, KVWrite
from jackfield.model_executor.kv_tensors import allocate_kv
from jackfield.model_executor.kv_writes import KVWrites
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.worker_driver import WorkerDriver
from jackfield_ops_torch.ops import TorchOps

CPU = torch.device("cpu")
GROUP = KVGroup(name="full", kind="full", layers=(0, 2), num_kv_heads=2, head_size=8, v_head_size=4)
LAYER = AttentionLayer(id=2, group="full", num_heads=4, num_kv_heads=2, head_size=8, v_head_size=4, scale=1.0)


class WritingOps(TorchOps):
    """Counts its writes."""

    written = 0

    def pre_attention(self, block: Any, x: torch.Tensor, residual: Any, ctx: Any) -> Any:
        q, k, v, total = super().pre_attention(block, x, residual, ctx)
        write: KVWrite | None = ctx.kv_write(block.layer)
        if write is None or k is None or v is None:
            return q, k, v, total
        for pages, new in ((write.k, k), (write.v, v)):
            by_slot = pages.transpose(1, 2) if write.layout == "hnd-paged" else pages
            by_slot[write.slots // write.page_size, write.slots % write.page_size] = new
        self.written += 1
        return q, None, None, total


@pytest.mark.parametrize("layout", CORE_LAYOUTS)
@pytest.mark.parametrize("checkpoint", ["llama", "mistral"])
def test_what_operators_write_is_what_attention_reads(
    make_worker: Callable[..., TorchWorker], request: pytest.FixtureRequest, checkpoint: str, layout: str
) -> None:
    """Prompts of several lengths and then decoding: the tokens are transformers'."""
    reference, ops = request.getfixturevalue(checkpoint), WritingOps()
    changes = {"layout": CORE_LAYOUTS[layout], "ops": lambda fields: ops}
    driven = WorkerDriver(make_worker(reference, stack_changes=changes, page_size=4), seed=3)
    tokens = np.random.default_rng(4).integers(0, 131, 23).tolist()
    requests = [driven.open(tokens[:n]) for n in (1, 9, 23)]
    for _ in range(6):
        driven.step(*requests)
    for one in requests:
        assert one.output == reference.greedy(one.tokens[: one.prompt_len], 6)
    assert ops.written == 6 * 3  # steps, layers


def kv(**changes: Any) -> dict[str, KVTensors]:
    made = allocate_kv((GROUP,), {"full": NHD_PAGED}, 3, 4, torch.float32, CPU)
    return {"full": replace(made["full"], **changes)}


def test_a_write_names_the_layers_own_tensors_and_the_slots_of_its_group() -> None:
    slots, made = torch.tensor([5, 6]), kv()
    write = KVWrites(made, {"full": slots, "other": slots + 1}).of(LAYER)
    assert write is not None
    assert write.slots is slots
    assert write.k is made["full"].of("k", 2)
    assert write.v is made["full"].of("v", 2)
    assert (write.page_size, write.layout) == (4, "nhd-paged")


def test_nothing_is_written_for_a_layer_without_keys_of_its_own_or_where_they_lie_otherwise() -> None:
    slots = {"full": torch.tensor([5])}
    assert KVWrites(kv(), slots).of(replace(LAYER, id=0, kv_source=2)) is None
    pages = (torch.zeros(3, 4, 2, 12),) * 2
    assert KVWrites(kv(tensors={"kv": pages}), slots).of(LAYER) is None
    tensors = dict(kv()["full"].tensors)
    assert KVWrites(kv(tensors=tensors | {"scale": pages}), slots).of(LAYER) is None
