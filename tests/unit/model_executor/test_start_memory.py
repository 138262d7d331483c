"""The worker's start on a device of given sizes: the largest step is run and measured before there is a pool, the pool is what
is left beside it, and a lack of memory says in which stage it was and what to lower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import InsufficientMemory, WorkerContext
from jackfield.model_executor import worker_start
from jackfield.model_executor.device import Memory
from jackfield.model_executor.out_of_memory import stage
from jackfield.model_executor.step_profile import largest_step
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.fake_device import FakeDevice
from jackfield.testing.worker_driver import WorkerDriver
from jackfield_attention_torch.backend import TorchAttention
from jackfield_ops_torch.ops import TorchOps

MIB = 2**20
SLOT = 3 * 2 * 2 * 8 * 4
"""Bytes: layers, keys and values, KV heads, head size, float32."""
PROMPT = [5, 6, 7, 8]


class Sized(FakeDevice):
    """free: bytes before the weights, which take 16 MiB of them; step: what it says that a step took."""

    def __init__(self, *, free: int = 80 * MIB, step: int = 0) -> None:
        super().__init__()
        self.free, self.step = free, step
        self.asked = 0

    def memory(self) -> Memory:
        self.asked += 1
        return Memory(free=self.free if self.asked == 1 else self.free - 16 * MIB, total=100 * MIB)

    def peak(self) -> int:
        return 7 * MIB + (self.step if any(line.startswith("wait") for line in self.log) else 0)


MakeContext = Callable[..., WorkerContext]


@pytest.mark.parametrize(
    ("changes", "step", "room"),
    [
        ({}, 0, 56 * MIB),
        ({}, 8 * MIB, 54 * MIB),
        ({"mem_fraction": 0.5}, 8 * MIB, 24 * MIB),
        ({"mem_fraction": 0.99}, 8 * MIB, 54 * MIB),
    ],
)
def test_the_pool_is_what_is_left(
    worker_context: MakeContext, llama: Any, changes: dict[str, Any], step: int, room: int
) -> None:
    for kv_dtype, size in ((None, 4), ("fp8_e4m3", 1)):
        context = worker_context(llama, max_total_tokens=None, kv_dtype=kv_dtype, **changes)
        worker = TorchWorker(context, on=Sized(step=step))
        assert worker.limits.total_slots == room // (SLOT * size // 4) - 1
        assert worker.limits.kv_bytes_per_slot == SLOT * size // 4
        worker.close()


def test_a_worker_is_as_new_after_the_measured_step(worker_context: MakeContext, llama: Any) -> None:
    driven = WorkerDriver(TorchWorker(worker_context(llama, max_total_tokens=256), on=Sized(step=MIB)))
    assert driven.generate(PROMPT, 5) == llama.greedy(PROMPT, 5)
    assert driven.worker.limits.total_slots == 256


def test_a_device_that_does_not_count_is_not_asked(worker_context: MakeContext, llama: Any) -> None:
    """A CPU, for one: there the step would be run for nothing."""
    device = FakeDevice()
    worker = TorchWorker(worker_context(llama), on=device)
    assert device.log == []
    worker.close()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"max_total_tokens": 2 * 10**5},
            r"takes 73.24 MiB, but cpu has 64.00 MiB free beside the weights, of which steps need 10.00 MiB: lower "
            r"--max-total-tokens to \d+ or less",
        ),
        (
            {"max_total_tokens": 10**5, "mem_fraction": 0.4},
            "--mem-fraction-static 0.4 leaves 16.00 MiB of 80.00 MiB for KV",
        ),
        ({"max_total_tokens": None, "mem_fraction": 0.1}, "not one page of 1 tokens .* raise --mem-fraction-static"),
    ],
)
def test_a_pool_that_does_not_fit(worker_context: MakeContext, llama: Any, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InsufficientMemory, match=told):
        TorchWorker(worker_context(llama, **changes), on=Sized(step=8 * MIB))


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total ...")


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (
            "load_model",
            "out of memory while loading the weights .CUDA out of memory. Tried to allocate 2.00 GiB..: free memory",
        ),
        ("ReqToTokenTable", "making the table of 9 rows.*: lower --max-running-requests or --context-length"),
        ("allocate_kv", "allocating a KV pool of 1024 tokens .*: lower --mem-fraction-static or --max-total-tokens"),
    ],
)
def test_a_lack_of_memory_says_in_which_stage(
    worker_context: MakeContext, llama: Any, monkeypatch: pytest.MonkeyPatch, where: str, told: str
) -> None:
    monkeypatch.setattr(worker_start, where, out_of_memory)
    with pytest.raises(InsufficientMemory, match=told):
        TorchWorker(worker_context(llama))


@pytest.mark.parametrize(("owner", "name"), [(TorchAttention, "attend"), (TorchOps, "sample")])
def test_a_step_that_does_not_fit(
    worker_context: MakeContext, llama: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, out_of_memory)
    told = "running the largest step once, 256 tokens of 8 requests .*: lower --max-prefill-tokens"
    with pytest.raises(InsufficientMemory, match=told):
        TorchWorker(worker_context(llama), on=Sized())


def test_what_is_no_lack_of_memory_passes_as_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^another$"), stage("trying", "lower it"):
        raise RuntimeError("another")
    with pytest.raises(InsufficientMemory, match=r"while trying .*allocate.*: lower it"), stage("trying", "lower it"):
        torch.empty(1 << 60)
    with pytest.raises(InsufficientMemory, match="while trying: lower it"), stage("trying", "lower it"):
        raise MemoryError


@pytest.mark.parametrize(
    ("max_running", "max_tokens", "max_context", "lengths"),
    [
        (4, 16, 32, [13, 1, 1, 1]),
        (4, 64, 32, [32, 30, 1, 1]),
        (4, 4, 32, [1, 1, 1, 1]),
        (9, 4, 32, [1, 1, 1, 1]),
        (2, 100, 8, [8, 8]),
        (3, 10, 1, [1, 1, 1]),
    ],
)
def test_the_largest_step(max_running: int, max_tokens: int, max_context: int, lengths: list[int]) -> None:
    found = largest_step(max_running=max_running, max_tokens=max_tokens, max_context=max_context)
    assert found.dtype == np.int32
    assert found.tolist() == lengths
