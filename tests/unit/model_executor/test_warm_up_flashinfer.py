"""The functions of FlashInfer, each of which is compiled at its first call, are called at start, and none is new later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from plugins.ops.flashinfer.tests.standin import module
from transformers import LlamaConfig, LlamaForCausalLM

from jackfield.hookspecs import WorkerContext
from jackfield.model_executor import worker_start
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.fake_device import FakeDevice
from jackfield.testing.worker_driver import WorkerDriver
from jackfield_ops_flashinfer.ops import FlashInferOps
from tests.unit.model_executor.mixed_serving import served

SIZES = {
    "vocab_size": 131,
    "hidden_size": 128,  # two heads of 64, the least that the rotary kernel turns
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 96,
}


def test_all_functions_are_called_at_start_and_none_is_new_later(
    worker_context: Callable[..., WorkerContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin = module()
    monkeypatch.setitem(sys.modules, "flashinfer", standin)
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    warm: set[str] = set()
    original = worker_start.warm_up  # type: ignore[attr-defined]

    def warm_up(*given: object) -> None:
        original(*given)
        warm.update(standin.calls)

    monkeypatch.setattr(worker_start, "warm_up", warm_up)
    context = worker_context(
        SimpleNamespace(path=tmp_path),
        dtype="bfloat16",
        warm_up=True,
        stack_changes={"ops": lambda fields: FlashInferOps()},
    )
    driver = WorkerDriver(TorchWorker(context, FakeDevice()), seed=3)
    everything = {"rmsnorm", "fused_add_rmsnorm", "apply_rope_with_cos_sin_cache_inplace", "silu_and_mul", "top_k"}
    assert warm == everything
    begin = len(standin.calls)
    served(driver, 1, 40)
    assert set(standin.calls[begin:]) == everything
    driver.worker.close()
